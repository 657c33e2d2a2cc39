//! Charts as shapes in plain numbers; the HTML template draws them as inline SVG, so that every text is escaped there.

mod axis;
mod loss;
mod shares;
mod steps;

pub use axis::Axis;
pub use loss::loss;
pub use shares::shares;
pub use steps::steps;

use crate::report::speed::quantile;
use serde::Serialize;

/// A drawing, `width` x `height` in its own units.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Scene {
    /// For readers who don't see it.
    pub label: String,
    pub width: f64,
    pub height: f64,
    pub shapes: Vec<Shape>,
    pub legend: Vec<Key>,
}

/// One entry of a legend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Key {
    /// Class of its swatch.
    pub class: String,
    pub words: String,
}

/// A shape; colours come from its class. `title` is what a pointer over it tells, empty for nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Shape {
    Path {
        class: String,
        d: String,
        title: String,
    },
    Line {
        class: String,
        x1: f64,
        y1: f64,
        x2: f64,
        y2: f64,
        title: String,
    },
    Rect {
        class: String,
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        title: String,
    },
    Circle {
        class: String,
        x: f64,
        y: f64,
        r: f64,
        title: String,
    },
    Text {
        class: String,
        x: f64,
        y: f64,
        text: String,
    },
}

impl Scene {
    fn new(label: &str, width: f64, height: f64) -> Scene {
        Scene {
            label: label.into(),
            width,
            height,
            ..Scene::default()
        }
    }

    fn key(&mut self, class: &str, words: impl Into<String>) {
        self.legend.push(Key {
            class: class.into(),
            words: words.into(),
        });
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64), title: impl Into<String>) {
        self.shapes.push(Shape::Line {
            class: class.into(),
            x1: round(from.0),
            y1: round(from.1),
            x2: round(to.0),
            y2: round(to.1),
            title: title.into(),
        });
    }

    /// `area`: x, y, width, height.
    fn rect(&mut self, class: &str, area: [f64; 4], title: impl Into<String>) {
        let [x, y, width, height] = area.map(round);
        self.shapes.push(Shape::Rect {
            class: class.into(),
            x,
            y,
            width,
            height,
            title: title.into(),
        });
    }

    fn circle(&mut self, class: &str, at: (f64, f64), r: f64, title: impl Into<String>) {
        self.shapes.push(Shape::Circle {
            class: class.into(),
            x: round(at.0),
            y: round(at.1),
            r,
            title: title.into(),
        });
    }

    fn text(&mut self, class: &str, at: (f64, f64), text: impl Into<String>) {
        self.shapes.push(Shape::Text {
            class: class.into(),
            x: round(at.0),
            y: round(at.1),
            text: text.into(),
        });
    }

    /// A line through `points`; nothing for fewer than two.
    fn polyline(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut d = String::new();
        let mut count = 0;
        for (x, y) in points {
            let letter = if count == 0 { 'M' } else { 'L' };
            d.push_str(&format!("{letter}{} {}", round(x), round(y)));
            count += 1;
        }
        if count > 1 {
            self.shapes.push(Shape::Path {
                class: class.into(),
                d,
                title: String::new(),
            });
        }
    }
}

/// Hundredths are finer than any screen; never anything but a finite number.
fn round(value: f64) -> f64 {
    match value.is_finite() {
        // Adding 0 turns -0 into 0.
        true => (value * 100.0).round() / 100.0 + 0.0,
        false => 0.0,
    }
}

/// What many points say in few: per bucket its middle x, and of y the mean, the first and last tenth, the greatest.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bucket {
    x: f64,
    mean: f64,
    low: f64,
    high: f64,
    most: f64,
}

/// At most `limit` buckets of neighbouring points.
fn buckets(points: &[(f64, f64)], limit: usize) -> Vec<Bucket> {
    let count = points.len().min(limit);
    (0..count)
        .map(|i| {
            let part = &points[i * points.len() / count..(i + 1) * points.len() / count];
            let n = part.len() as f64;
            let mut sorted: Vec<f64> = part.iter().map(|p| p.1).collect();
            sorted.sort_by(f64::total_cmp);
            let at = |q| quantile(&sorted, q).unwrap_or(0.0);
            Bucket {
                x: part.iter().map(|p| p.0).sum::<f64>() / n,
                mean: part.iter().map(|p| p.1).sum::<f64>() / n,
                low: at(0.1),
                high: at(0.9),
                most: at(1.0),
            }
        })
        .collect()
}
