// SPDX-License-Identifier: GPL-2.0-or-later
//! What the keys do, and what is on the screen at each moment.

use nearwalk_advise::survey::{Kind, Subject};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, TableState, Widget, Wrap};

use crate::draw::{self, Lines};
use crate::frame::{Frame, Key};
use crate::view::View;

const KEYS: &str = "q quit  s sort  / filter  → open  ← close  Enter advice  p pause";

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
}

/// What the keys go to.
#[derive(Debug, Default)]
enum Focus {
    #[default]
    Rows,
    Filter,
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

    /// The row that is selected.
    pub fn subject(&self) -> Option<&Subject> {
        let rows = self.view.rows(self.frame.as_ref()?);
        let key = self.selected.as_ref()?;
        rows.into_iter().find(|row| Key::of(row) == *key)
    }

    /// A key was pressed.
    pub fn press(&mut self, key: KeyEvent) -> Reaction {
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
        let lines = Lines {
            status: self.status(frame),
            footer: match self.focus {
                Focus::Filter => format!("/{}_  Enter keeps it, Esc clears it", self.view.filter),
                _ if self.view.filter.is_empty() => KEYS.to_owned(),
                _ => format!("only `{}` (Esc: all)  {KEYS}", self.view.filter),
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
