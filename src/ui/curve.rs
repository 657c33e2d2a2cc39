//! Curves in text: a braille line plot with axes, and a one-line sparkline.

use super::style::Style;
use super::units;

/// A named curve of (x, y) points, x ascending.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    pub points: &'a [(f64, f64)],
    /// How it is painted.
    pub paint: fn(Style, &str) -> String,
    /// Each point is this letter; without one, a line goes through them.
    pub marker: Option<char>,
}

/// Plots `series` on one canvas of `width` x `height` characters, axes included; later series are drawn on top.
/// Empty when no point is finite.
pub fn plot(series: &[Series], width: usize, height: usize, style: Style) -> String {
    let points = || {
        series
            .iter()
            .flat_map(|s| s.points)
            .filter(|(x, y)| x.is_finite() && y.is_finite())
    };
    if points().next().is_none() {
        return String::new();
    }
    let (x0, x1) = range(points().map(|p| p.0));
    let (y0, y1) = range(points().map(|p| p.1));
    let labels = [y1, y0 / 2.0 + y1 / 2.0, y0].map(units::number);
    let margin = labels.iter().map(|l| l.chars().count()).max().unwrap_or(0) + 2;
    let columns = width.saturating_sub(margin).max(8);
    let rows = height.max(3);
    let mut canvas = Canvas::new(columns, rows);
    for (index, s) in series.iter().enumerate() {
        let mut before: Option<(f64, f64)> = None;
        for (x, y) in s.points {
            if !(x.is_finite() && y.is_finite()) {
                before = None;
                continue;
            }
            let at = (
                scale(*x, x0, x1, columns * 2),
                (rows * 4 - 1) as f64 - scale(*y, y0, y1, rows * 4),
            );
            match s.marker {
                Some(_) => canvas.mark(at, index),
                None => canvas.line(before.unwrap_or(at), at, index),
            }
            before = Some(at);
        }
    }
    let mut text = String::new();
    for row in 0..rows {
        let label = match row {
            0 => &labels[0],
            r if r == rows / 2 => &labels[1],
            r if r == rows - 1 => &labels[2],
            _ => "",
        };
        let axis = if label.is_empty() { "│" } else { "┤" };
        text.push_str(&style.dim(&format!("{label:>w$} {axis}", w = margin - 2)));
        text.push_str(canvas.row(row, series, style).trim_end());
        text.push('\n');
    }
    let (left, right) = (units::count(x0), units::count(x1));
    let rule = format!("{:>m$}{}", "└", "─".repeat(columns), m = margin);
    let gap = columns.saturating_sub(left.len() + right.len());
    text.push_str(&style.dim(&rule));
    text.push('\n');
    text.push_str(&style.dim(&format!("{:m$}{left}{:gap$}{right}", "", "", m = margin)));
    text.push('\n');
    text
}

/// Eight heights, one character for an even share of the values (their mean).
pub fn spark(values: &[f64], width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let width = width.min(values.len());
    if width == 0 {
        return String::new();
    }
    let means: Vec<f64> = (0..width)
        .map(|i| {
            let part = &values[i * values.len() / width..(i + 1) * values.len() / width];
            part.iter().sum::<f64>() / part.len() as f64
        })
        .collect();
    let (low, high) = range(means.iter().copied().filter(|v| v.is_finite()));
    means
        .iter()
        .map(|v| match v.is_finite() {
            true => BARS[(scale(*v, low, high, 8)).round().clamp(0.0, 7.0) as usize],
            false => ' ',
        })
        .collect()
}

/// A horizontal bar of `share` (0 to 1) of `width` characters, in eighths.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if !share.is_finite() || share <= 0.0 {
        return String::new();
    }
    let eighths = (share.min(1.0) * width as f64 * 8.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
        (low.min(v), high.max(v))
    })
}

/// `value` between `low` and `high` on dots 0 to `dots` - 1; the middle when there is no range.
fn scale(value: f64, low: f64, high: f64, dots: usize) -> f64 {
    let last = (dots - 1) as f64;
    // Halves: a difference of huge values need not be finite.
    match high > low {
        true => (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0) * last,
        false => last / 2.0,
    }
}

/// Braille dots, 2 x 4 a character, and which series was last drawn in each character.
struct Canvas {
    columns: usize,
    dots: Vec<u8>,
    owner: Vec<usize>,
    marked: Vec<bool>,
}

impl Canvas {
    fn new(columns: usize, rows: usize) -> Canvas {
        Canvas {
            columns,
            dots: vec![0; columns * rows],
            owner: vec![0; columns * rows],
            marked: vec![false; columns * rows],
        }
    }

    fn dot(&mut self, x: usize, y: usize, owner: usize) {
        const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
        let at = y / 4 * self.columns + x / 2;
        if x / 2 < self.columns
            && let Some(cell) = self.dots.get_mut(at)
        {
            *cell |= BITS[x % 2][y % 4];
            self.owner[at] = owner;
        }
    }

    fn mark(&mut self, at: (f64, f64), owner: usize) {
        let (x, y) = (at.0.round().max(0.0), at.1.round().max(0.0));
        let cell = y as usize / 4 * self.columns + x as usize / 2;
        if let Some(marked) = self.marked.get_mut(cell) {
            *marked = true;
            self.owner[cell] = owner;
        }
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), owner: usize) {
        let steps = (to.0 - from.0)
            .abs()
            .max((to.1 - from.1).abs())
            .ceil()
            .max(1.0);
        for i in 0..=steps as usize {
            let t = i as f64 / steps;
            let x = from.0 + t * (to.0 - from.0);
            let y = from.1 + t * (to.1 - from.1);
            self.dot(
                x.round().max(0.0) as usize,
                y.round().max(0.0) as usize,
                owner,
            );
        }
    }

    fn row(&self, row: usize, series: &[Series], style: Style) -> String {
        let cells = row * self.columns..(row + 1) * self.columns;
        cells
            .map(|at| {
                let series = &series[self.owner[at]];
                let dots = char::from_u32(0x2800 + u32::from(self.dots[at])).unwrap_or(' ');
                let glyph = match (self.marked[at], self.dots[at]) {
                    (true, _) => series.marker.unwrap_or(dots),
                    (false, 0) => return " ".to_owned(),
                    (false, _) => dots,
                };
                (series.paint)(style, &glyph.to_string())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_falling_curve_goes_from_the_upper_left_to_the_lower_right() {
        let points: Vec<(f64, f64)> = (0..=20)
            .map(|i| (i as f64, 10.0 - i as f64 / 2.0))
            .collect();
        let series = [Series {
            points: &points,
            paint: Style::cyan,
            marker: None,
        }];
        let text = plot(&series, 26, 4, Style::PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        let first = lines[0].trim_end().chars().count();
        let last = lines[3].chars().count();
        assert!(first < last && last == 26, "{text}");
        assert!(
            lines[0].starts_with("10.0 ┤") && lines[3].starts_with("   0 ┤"),
            "{text}"
        );
    }

    #[test]
    fn marks_are_letters_over_the_line() {
        let line = [(0.0, 0.0), (10.0, 0.0)];
        let marks = [(0.0, 0.0), (10.0, 0.0)];
        let paint = Style::cyan as fn(Style, &str) -> String;
        let series = [
            Series {
                points: &line,
                paint,
                marker: None,
            },
            Series {
                points: &marks,
                paint,
                marker: Some('o'),
            },
        ];
        let text = plot(&series, 20, 3, Style::PLAIN);
        let row = text.lines().find(|line| line.contains('o')).unwrap();
        assert_eq!(row.matches('o').count(), 2, "{text}");
        let line = row
            .chars()
            .filter(|c| ('\u{2801}'..='\u{28ff}').contains(c));
        assert!(row.ends_with('o') && line.count() > 8, "{text}");
    }

    #[test]
    fn odd_input_draws_without_fault() {
        let paint = Style::cyan as fn(Style, &str) -> String;
        let odd: [&[(f64, f64)]; 4] = [
            &[],
            &[(1.0, f64::NAN)],
            &[(1.0, 2.0)],
            &[(0.0, 1.0), (1.0, f64::INFINITY), (2.0, 1.0)],
        ];
        for points in odd {
            let series = Series {
                points,
                paint,
                marker: None,
            };
            let text = plot(&[series], 20, 5, Style::PLAIN);
            let drawable = points.iter().any(|p| p.1.is_finite());
            assert_eq!(text.is_empty(), !drawable, "{points:?}");
        }
        assert_eq!(spark(&[], 5), "");
        assert_eq!(spark(&[0.0, 1.0, 2.0, 3.0], 4), "▁▃▆█");
        assert_eq!(spark(&[1.0; 9], 3).chars().count(), 3);
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.28, 4), "█▏");
        assert_eq!(bar(f64::NAN, 4), "");
    }
}
