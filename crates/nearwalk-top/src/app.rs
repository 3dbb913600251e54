// SPDX-License-Identifier: GPL-2.0-or-later
//! What the keys do, and what is on the screen at each moment.

use nearwalk_advise::report::{Kind, Subject};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, TableState, Widget, Wrap};

use crate::draw::{self, Lines};
use crate::frame::{Frame, Key};
use crate::view::View;

const KEYS: &str = "q quit  s sort  / filter  → open  ← close  ↵ advice  p pause";

const KEYS_OF_OURS: &str = "  set e eager l lazy o off d default, u undo";

/// What has to be done that is not on the screen.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing.
    None,
    /// The end.
    Quit,
    /// Stop until the shell says to go on.
    Suspend,
    /// Find out what there is to do about someone.
    Advise(Key),
    /// Change what holds for someone.
    Set(Key, Change),
    /// Bring back what was before the last change.
    Undo,
}

/// What can be set for someone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Copies on all nodes.
    Eager,
    /// Copies of what each node uses.
    Lazy,
    /// No copies.
    Off,
    /// What holds for the group above, or the system.
    Default,
}

impl Change {
    fn of(letter: char) -> Option<Self> {
        Some(match letter {
            'e' => Self::Eager,
            'l' => Self::Lazy,
            'o' => Self::Off,
            'd' => Self::Default,
            _ => return None,
        })
    }

    /// As the kernel reads it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Eager => "eager all",
            Self::Lazy => "lazy all",
            Self::Off => "off",
            Self::Default => "default",
        }
    }
}

/// What the keys go to.
#[derive(Debug, Default)]
enum Focus {
    #[default]
    Rows,
    Filter,
    /// A question, which `y` says yes to.
    Ask(Key, Change),
    /// A text over the rows.
    Text {
        title: String,
        text: String,
        scroll: u16,
    },
}

/// The program between two events.
#[derive(Debug, Default)]
pub struct App {
    view: View,
    frame: Option<Frame>,
    /// The last frame, while an older one stays on the screen.
    paused: Option<Option<Frame>>,
    ended: bool,
    focus: Focus,
    /// What came of a key, in the last line until the next one.
    message: Option<String>,
    /// Who is selected, wherever it is in the next frame.
    selected: Option<Key>,
    table: TableState,
}

impl App {
    /// Takes what was seen.
    pub fn take(&mut self, frame: Frame) {
        match &mut self.paused {
            Some(later) => *later = Some(frame),
            None => self.frame = Some(frame),
        }
    }

    /// There are no more frames.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Shows a text until a key is pressed.
    pub fn show(&mut self, title: &str, text: String) {
        self.focus = Focus::Text {
            title: title.to_owned(),
            text,
            scroll: 0,
        };
    }

    /// Says in the last line what came of a key.
    pub fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    /// The row that is selected.
    pub fn subject(&self) -> Option<&Subject> {
        let rows = self.view.rows(self.frame.as_ref()?);
        let key = self.selected.as_ref()?;
        rows.into_iter().find(|row| Key::of(row) == *key)
    }

    /// A key was pressed.
    pub fn press(&mut self, key: KeyEvent) -> Reaction {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Reaction::Quit,
                KeyCode::Char('z') => Reaction::Suspend,
                _ => Reaction::None,
            };
        }
        match &mut self.focus {
            Focus::Rows => self.press_in_rows(key.code),
            Focus::Filter => {
                match key.code {
                    KeyCode::Char(letter) => self.view.filter.push(letter),
                    KeyCode::Backspace => {
                        self.view.filter.pop();
                    }
                    KeyCode::Enter => self.focus = Focus::Rows,
                    KeyCode::Esc => {
                        self.view.filter.clear();
                        self.focus = Focus::Rows;
                    }
                    _ => {}
                }
                Reaction::None
            }
            Focus::Ask(who, what) => {
                let reaction = match key.code {
                    KeyCode::Char('y') => Reaction::Set(who.clone(), *what),
                    _ => Reaction::None,
                };
                self.focus = Focus::Rows;
                reaction
            }
            Focus::Text { scroll, .. } => {
                match key.code {
                    KeyCode::Down | KeyCode::Char('j') => *scroll = scroll.saturating_add(1),
                    KeyCode::Up | KeyCode::Char('k') => *scroll = scroll.saturating_sub(1),
                    _ => self.focus = Focus::Rows,
                }
                Reaction::None
            }
        }
    }

    fn press_in_rows(&mut self, code: KeyCode) -> Reaction {
        match code {
            KeyCode::Char('q') => return Reaction::Quit,
            KeyCode::Char('s') => self.view.sort = self.view.sort.next(),
            KeyCode::Char('/') => self.focus = Focus::Filter,
            KeyCode::Esc => self.view.filter.clear(),
            KeyCode::Char('p') => self.pause(),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(10),
            KeyCode::PageUp => self.step(-10),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Right => {
                if let Some(Key {
                    kind: Kind::Group,
                    name,
                    ..
                }) = &self.selected
                {
                    self.view.opened.insert(name.clone());
                }
            }
            KeyCode::Left => self.close(),
            KeyCode::Char('u') => return Reaction::Undo,
            KeyCode::Char(letter) => {
                if let Some(change) = Change::of(letter) {
                    self.ask(change);
                }
            }
            KeyCode::Enter => {
                if let Some(key) = &self.selected {
                    return Reaction::Advise(key.clone());
                }
            }
            _ => {}
        }
        Reaction::None
    }

    fn pause(&mut self) {
        match self.paused.take() {
            None => self.paused = Some(None),
            Some(Some(later)) => self.frame = Some(later),
            Some(None) => {}
        }
    }

    /// Asks whether the selected one is to be changed so.
    fn ask(&mut self, change: Change) {
        let ours = self
            .frame
            .as_ref()
            .is_some_and(|frame| frame.copies.is_some());
        match &self.selected {
            _ if !ours => self.say("this kernel does not copy page tables; Nearwalk's does".into()),
            None => self.say("select a row first".into()),
            Some(Key { kind: Kind::Vm, .. }) => {
                self.say("tables of virtual machines are not copied".into());
            }
            Some(key) => self.focus = Focus::Ask(key.clone(), change),
        }
    }

    /// Closes the group that is selected, or that of the process that is.
    fn close(&mut self) {
        let Some(subject) = self.subject() else {
            return;
        };
        let (kind, name) = (subject.kind, subject.name.clone());
        let group = subject.group.clone();
        if self.view.opened.remove(group.as_ref().unwrap_or(&name)) && kind == Kind::Process {
            self.selected = group.map(|name| Key {
                kind: Kind::Group,
                name,
                pid: None,
            });
        }
    }

    fn step(&mut self, rows: isize) {
        let Some(frame) = &self.frame else {
            return;
        };
        let all = self.view.rows(frame);
        let at = self.table.selected();
        let to = match at {
            Some(at) => at.saturating_add_signed(rows),
            None => 0,
        };
        let to = to.min(all.len().saturating_sub(1));
        self.selected = all.get(to).map(|row| Key::of(row));
    }

    /// Draws all of it.
    pub fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        let Some(frame) = &self.frame else {
            Line::raw("looking around ...").render(area, buffer);
            return;
        };
        let rows = self.view.rows(frame);
        let key = self.selected.as_ref();
        let at = key.and_then(|key| rows.iter().position(|row| Key::of(row) == *key));
        self.table.select(at);
        let keys = match &frame.copies {
            Some(_) => format!("{KEYS}{KEYS_OF_OURS}"),
            None => KEYS.to_owned(),
        };
        let lines = Lines {
            status: self.status(frame),
            footer: match &self.focus {
                Focus::Ask(key, change) => {
                    format!(
                        "set {} for {}?  y yes, any other key no",
                        change.text(),
                        key.name
                    )
                }
                _ if self.message.is_some() => self.message.clone().unwrap_or_default(),
                Focus::Filter => format!("/{}_  Enter keeps it, Esc clears it", self.view.filter),
                _ if self.view.filter.is_empty() => keys,
                _ => format!("only `{}` (Esc: all)  {keys}", self.view.filter),
            },
        };
        draw::draw(frame, &self.view, &lines, &mut self.table, area, buffer);
        if let Focus::Text {
            title,
            text,
            scroll,
        } = &self.focus
        {
            over(title, text, *scroll, area, buffer);
        }
    }

    fn status(&self, frame: &Frame) -> String {
        let state = if self.paused.is_some() {
            "paused".to_owned()
        } else if self.ended {
            "end of the recording".to_owned()
        } else {
            format!("{:.1} s", frame.report.length.as_secs_f64())
        };
        format!("by {}, {state}", self.view.sort.name())
    }
}

/// A text in a box over the rest.
fn over(title: &str, text: &str, scroll: u16, area: Rect, buffer: &mut Buffer) {
    if area.width < draw::LEAST.0 || area.height < draw::LEAST.1 {
        return;
    }
    let lines = u16::try_from(text.lines().count()).unwrap_or(u16::MAX);
    let wrapped = text
        .lines()
        .map(|line| line.chars().count() / usize::from(area.width - 4));
    let wrapped = u16::try_from(wrapped.sum::<usize>()).unwrap_or(u16::MAX);
    let height = lines
        .saturating_add(wrapped)
        .saturating_add(2)
        .min(area.height - 2);
    let area = Rect::new(area.x + 1, area.y + 1, area.width - 2, height);
    Clear.render(area, buffer);
    let block = Block::bordered()
        .title(format!(" {title} "))
        .title_bottom(" any key ");
    let text = Paragraph::new(text)
        .wrap(Wrap { trim: false })
        .scroll((scroll, 0));
    text.block(block).render(area, buffer);
}
