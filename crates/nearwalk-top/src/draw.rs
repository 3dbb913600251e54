// SPDX-License-Identifier: GPL-2.0-or-later
//! The screen, as a function of a frame and of what the user has chosen.

use nearwalk_advise::exposure::{CpuTime, Tables};
use nearwalk_advise::print::{self, bytes, how, percent, remote};
use nearwalk_advise::report::{Kind, Reason, Subject};
use nearwalk_host::Node;
use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, StatefulWidget, Table, TableState, Widget};

use crate::frame::{Copies, Frame};
use crate::view::View;

/// The least that a screen is drawn on.
pub const LEAST: (u16, u16) = (60, 8);
/// Nodes are written in numbers on screens as wide as this.
const NUMBERS: u16 = 100;
/// What else there is to say of a row is written on screens as wide as this.
const REMARKS: u16 = 140;
/// The least and the most that a name gets.
const NAME: (u16, u16) = (20, 64);

/// Which columns there are.
#[derive(Clone, Copy, Debug)]
struct Layout {
    by_node: ByNode,
    /// What lazy copies do.
    lazy: bool,
}

/// How shares by node are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByNode {
    Numbers,
    /// A cell for each node, the higher the more.
    Bars,
    /// The screen has no room.
    Not,
}

/// From the widest to the narrowest.
const LAYOUTS: [Layout; 4] = [
    Layout {
        by_node: ByNode::Numbers,
        lazy: true,
    },
    Layout {
        by_node: ByNode::Bars,
        lazy: true,
    },
    Layout {
        by_node: ByNode::Bars,
        lazy: false,
    },
    Layout {
        by_node: ByNode::Not,
        lazy: false,
    },
];

/// What is drawn beside the rows.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// In the first line, at its right end.
    pub status: String,
    /// In the last line.
    pub footer: String,
}

/// Draws into an area of at least [`LEAST`]; on less it says so.
pub fn draw(
    frame: &Frame,
    view: &View,
    lines: &Lines,
    selected: &mut TableState,
    area: Rect,
    buffer: &mut Buffer,
) {
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("needs {} x {}", LEAST.0, LEAST.1);
        Line::raw(text).render(area, buffer);
        return;
    }
    let row = |y: u16| Rect::new(area.x, area.y + y, area.width, 1);
    let status = Line::raw(lines.status.as_str()).alignment(Alignment::Right);
    let room = usize::from(area.width).saturating_sub(status.width() + 2);
    Line::raw(cut(head(frame), room)).render(row(0), buffer);
    status.render(row(0), buffer);
    let notes: Vec<String> = notes(frame)
        .iter()
        .flat_map(|note| wrapped(note, area.width.into()))
        .collect();
    let tail = 1 + u16::try_from(notes.len())
        .unwrap_or(u16::MAX)
        .min(area.height / 4);
    let middle = Rect::new(area.x, area.y + 1, area.width, area.height - 1 - tail);
    let rows = view.rows(frame);
    StatefulWidget::render(table(frame, &rows, area.width), middle, buffer, selected);
    for (index, note) in notes.iter().take(usize::from(tail - 1)).enumerate() {
        let y = area.height - tail + index as u16;
        Line::styled(note.as_str(), dim()).render(row(y), buffer);
    }
    Line::raw(lines.footer.as_str()).render(row(area.height - 1), buffer);
}

/// The frame as text, with all rows and notes.
pub fn text(frame: &Frame, view: &View, width: u16) -> String {
    let width = width.max(LEAST.0);
    let rows = view.rows(frame);
    let most = usize::from(u16::MAX / width);
    let height = (1 + rows.len()).min(most) as u16;
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    let table = table(frame, &rows, width);
    StatefulWidget::render(table, area, &mut buffer, &mut TableState::default());
    let mut text = head(frame) + "\n" + &screen(&buffer);
    for note in notes(frame) {
        text += &note;
        text.push('\n');
    }
    text
}

/// A line without those of its last parts that there is no room for.
fn cut(mut line: String, room: usize) -> String {
    while line.chars().count() > room {
        line.truncate(line.rfind("  ").unwrap_or(0));
    }
    line
}

/// The lines that a note takes.
fn wrapped(note: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in note.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

/// What stands in a buffer, without styles and blanks at the ends of lines.
pub fn screen(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in buffer.area.rows() {
        let cells = y.columns().map(|at| buffer[(at.x, at.y)].symbol());
        let line: String = cells.collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn head(frame: &Frame) -> String {
    let report = &frame.report;
    let sum = |of: fn(&Node) -> u64| bytes(report.nodes.iter().map(of).sum());
    let nodes = match report.nodes.len() {
        0 | 1 => "1 node".to_owned(),
        many => format!("{many} nodes"),
    };
    format!(
        "nearwalk top  {}  {nodes}  tables {}  nested {}",
        report.kernel,
        sum(|node| node.tables),
        sum(|node| node.nested.unwrap_or(0)),
    )
}

/// What the rows do not say.
fn notes(frame: &Frame) -> Vec<String> {
    let report = &frame.report;
    let mut notes = Vec::new();
    if report.one_node() {
        notes.push("1 node: no walk of page tables can be remote".to_owned());
    }
    if let Some(seen) = report.seen {
        notes.push(format!(
            "CPU time: {}, {} % seen",
            how(report, report.source),
            percent(seen)
        ));
    }
    notes.extend(report.lost.iter().map(|lost| format!("not known: {lost}")));
    notes
}

/// A column: its title, where its text stands, and what is in each row.
struct Column {
    title: String,
    alignment: Alignment,
    cells: Vec<String>,
}

impl Column {
    fn right(title: &str, cells: impl Iterator<Item = String>) -> Self {
        Self {
            title: title.to_owned(),
            alignment: Alignment::Right,
            cells: cells.collect(),
        }
    }

    fn width(&self) -> u16 {
        let widths = self.cells.iter().chain([&self.title]);
        let widest = widths.map(|text| text.chars().count()).max().unwrap_or(0);
        u16::try_from(widest).unwrap_or(u16::MAX)
    }
}

fn table<'a>(frame: &'a Frame, rows: &[&'a Subject], width: u16) -> Table<'a> {
    let fits = |layout: &Layout| width >= NUMBERS || layout.by_node != ByNode::Numbers;
    let mut columns = Vec::new();
    let mut room = 0;
    for layout in LAYOUTS.into_iter().filter(fits) {
        columns = self::columns(frame, rows, layout);
        let taken: u16 = columns.iter().map(|column| column.width() + 2).sum();
        room = width.saturating_sub(taken);
        if room >= NAME.0 {
            break;
        }
    }
    let names: Vec<String> = rows.iter().map(|row| name(row)).collect();
    let longest = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    let room = room.clamp(1, NAME.1).min(longest.max(4) as u16);
    let mut widths = vec![Constraint::Length(room)];
    widths.extend(
        columns
            .iter()
            .map(|column| Constraint::Length(column.width())),
    );
    let mut header = vec![Line::raw("NAME")];
    for column in &columns {
        header.push(Line::raw(column.title.clone()).alignment(column.alignment));
    }
    let remarks = width >= REMARKS;
    if remarks {
        widths.push(Constraint::Fill(1));
        header.push(Line::raw("REMARKS"));
    }
    let body = rows.iter().enumerate().map(|(index, subject)| {
        let mut cells = vec![Line::from(Span::raw(shorten(&names[index], room.into())))];
        for column in &columns {
            let text = column.cells[index].clone();
            cells.push(Line::raw(text).alignment(column.alignment));
        }
        if remarks {
            let remarks = match subject.quiet {
                Some(_) => String::new(),
                None => print::remarks(subject).join(", "),
            };
            cells.push(Line::raw(remarks));
        }
        Row::new(cells).style(style(frame, subject))
    });
    Table::new(body.collect::<Vec<_>>(), widths)
        .header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
}

fn style(frame: &Frame, subject: &Subject) -> Style {
    if subject.quiet.is_some() {
        dim()
    } else if is_alarming(frame, subject) {
        Style::new().fg(Color::Red)
    } else {
        Style::new()
    }
}

fn columns(frame: &Frame, rows: &[&Subject], layout: Layout) -> Vec<Column> {
    let cpus = rows.iter().map(|row| format!("{:.1}", row.cpus));
    let mut columns = vec![Column::right("CPUS", cpus)];
    let nodes = &frame.report.nodes;
    let times: Vec<Vec<Share>> = rows.iter().map(|row| time(row, nodes.len())).collect();
    columns.extend(by_node(nodes, layout.by_node, "%", &times));
    let total = rows.iter().map(|row| bytes(row.tables.total()));
    columns.push(Column::right("TABLES", total));
    let tables: Vec<Vec<Share>> = rows.iter().map(|row| tables(row, nodes.len())).collect();
    columns.extend(by_node(nodes, layout.by_node, "", &tables));
    columns.push(Column::right(
        "MAY BE REMOTE",
        rows.iter().map(|row| walks(frame, row)),
    ));
    if frame.copies.is_some() {
        let mut column = |title, text: fn(&Copies) -> Option<String>| {
            let cells = rows.iter().map(|row| {
                frame
                    .copies_of(row)
                    .and_then(text)
                    .unwrap_or("-".to_owned())
            });
            columns.push(Column::right(title, cells));
        };
        column("MODE", |copies| Some(copies.mode.clone()));
        column("COPIES", |copies| Some(bytes(copies.bytes)));
        if layout.lazy {
            column("FILLS", |copies| Some(copies.lazy?.fills.to_string()));
            column("SAVED", saved);
        }
    }
    columns
}

/// The share of interrupts that lazy copies saved.
fn saved(copies: &Copies) -> Option<String> {
    let lazy = copies.lazy.filter(|lazy| lazy.due > 0)?;
    let saved = lazy.due.saturating_sub(lazy.sent);
    Some(format!("{} %", percent(saved as f64 / lazy.due as f64)))
}

/// What is of one node: a share of all, and how it is written as a number.
struct Share {
    /// None if it is not known.
    of_all: Option<f64>,
    number: String,
}

impl Share {
    fn unknown(number: &str) -> Self {
        Self {
            of_all: None,
            number: number.to_owned(),
        }
    }
}

fn time(row: &Subject, nodes: usize) -> Vec<Share> {
    match &row.time {
        CpuTime::Shares(shares) => {
            let share = |&share: &f64| Share {
                of_all: Some(share),
                number: percent(share),
            };
            shares.iter().map(share).collect()
        }
        // Nobody looked.
        CpuTime::Among(_) if row.quiet.is_some() => {
            (0..nodes).map(|_| Share::unknown("-")).collect()
        }
        CpuTime::Among(among) => {
            let share = |node| {
                if among.contains(&node) {
                    return Share::unknown("?");
                }
                Share {
                    of_all: Some(0.0),
                    number: "0".to_owned(),
                }
            };
            (0..nodes).map(share).collect()
        }
    }
}

fn tables(row: &Subject, nodes: usize) -> Vec<Share> {
    match &row.tables {
        Tables::Known(tables) => {
            let all = row.tables.total().max(1) as f64;
            let share = |&tables: &u64| Share {
                of_all: Some(tables as f64 / all),
                number: bytes(tables),
            };
            tables.iter().map(share).collect()
        }
        Tables::Within { .. } => (0..nodes).map(|_| Share::unknown("?")).collect(),
    }
}

/// A column for each node, or one with a cell for each.
fn by_node(nodes: &[Node], how: ByNode, unit: &str, rows: &[Vec<Share>]) -> Vec<Column> {
    // Of one node there is nothing to tell.
    if nodes.len() <= 1 {
        return Vec::new();
    }
    match how {
        ByNode::Not => Vec::new(),
        ByNode::Numbers => {
            let column = |(index, node): (usize, &Node)| {
                let cells = rows.iter().map(|row| row[index].number.clone());
                Column::right(&format!("{unit}N{}", node.id), cells)
            };
            nodes.iter().enumerate().map(column).collect()
        }
        ByNode::Bars => {
            let last_digits = nodes.iter().map(|node| (node.id % 10).to_string());
            let cells = rows.iter().map(|row| row.iter().map(bar).collect());
            vec![Column::right(&last_digits.collect::<String>(), cells)]
        }
    }
}

fn bar(share: &Share) -> char {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    match share.of_all {
        None => share.number.chars().next().unwrap_or('?'),
        // As little as shows as 0 in numbers.
        Some(share) if share < 0.001 => '.',
        Some(share) => BARS[((share * 8.0) as usize).min(7)],
    }
}

/// The share of walks that may be remote, or why it is of no interest. Those
/// that are for certain have a sign, since not all terminals have colours.
fn walks(frame: &Frame, row: &Subject) -> String {
    match row.quiet {
        _ if frame.report.one_node() => "0 %  ".to_owned(),
        Some(Reason::FitsL3) => "fits L3  ".to_owned(),
        Some(Reason::Idle) => "idle  ".to_owned(),
        Some(Reason::Local | Reason::Gone) | None if frame.is_covered(row) => "copied  ".to_owned(),
        Some(Reason::Local | Reason::Gone) | None => {
            let sign = if is_alarming(frame, row) { " !" } else { "  " };
            remote(row.bounds) + sign
        }
    }
}

/// Whether most of the walks are remote for certain, and nothing is done about it.
fn is_alarming(frame: &Frame, row: &Subject) -> bool {
    row.quiet.is_none() && row.bounds.is_certainly_remote() && !frame.is_covered(row)
}

fn name(row: &Subject) -> String {
    match (row.kind, row.pid) {
        (Kind::Vm, _) => format!("{} (VM)", row.name),
        (Kind::Process, Some(pid)) if row.group.is_some() => format!("  {pid} {}", row.name),
        (Kind::Process, Some(pid)) => format!("{pid} {}", row.name),
        _ => row.name.clone(),
    }
}

/// A path that is too long keeps its end, which tells one from another.
fn shorten(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    let tail = name.chars().skip(length + 1 - room.max(1));
    std::iter::once('…').chain(tail).collect()
}
