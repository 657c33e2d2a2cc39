//! The loss curve: raw and smoothed training loss, validation, lost steps, marks where attempts went on.

use super::axis::{Axis, frame};
use super::{Scene, buckets};
use crate::report::document::LossChart;
use crate::report::speed::quantile;
use crate::ui::units;

const WIDTH: f64 = 940.0;
const HEIGHT: f64 = 340.0;
/// More points than this are drawn as the range of each bucket and a line through their means.
const RAW: usize = 160;

/// Absent when there is nothing to draw.
pub fn loss(chart: &LossChart) -> Option<Scene> {
    let all = || {
        chart
            .train
            .iter()
            .flatten()
            .chain(&chart.validation)
            .chain(chart.abandoned.iter().flatten())
    };
    let mut values: Vec<f64> = all().map(|p| p.1).collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (*values.first()?, *values.last()?);
    // A spike of a few steps must not flatten the curve: beyond three times the spread it is cut at the top.
    let body = quantile(&values, 0.98)?;
    let high = high.min(body + 1.5 * (body - low).max(f64::EPSILON));
    let last = all().map(|p| p.0).fold(1.0, f64::max);
    let x = Axis::whole(0.0, last, 8, 52.0, WIDTH - 14.0);
    let y = Axis::round(low, high, 5, HEIGHT - 44.0, 30.0);
    let mut scene = Scene::new("loss over steps", WIDTH, HEIGHT);
    let name = match chart.unit {
        "" => "loss".to_owned(),
        unit => format!("loss, {unit}"),
    };
    frame(&mut scene, &x, &y, ("step", &name), Axis::label);

    for (step, words) in &chart.marks {
        let at = x.at(*step);
        scene.line(
            "mark",
            (at, y.at(y.high())),
            (at, HEIGHT - 44.0),
            words.clone(),
        );
    }
    for part in &chart.abandoned {
        let points = buckets(part, RAW);
        scene.polyline("lost", points.iter().map(|b| (x.at(b.x), y.at(b.mean))));
    }
    let count: usize = chart.train.iter().map(Vec::len).sum();
    for part in &chart.train {
        // Each part of the line gets its share of the points.
        let share = |limit: usize| (limit * part.len()).div_ceil(count.max(1)).max(2);
        if count > RAW {
            let raw = buckets(part, share(2 * WIDTH as usize));
            scene.polyline("raw", raw.iter().map(|b| (x.at(b.x), y.at(b.mean))));
        }
        let points = buckets(part, share(RAW));
        // A single point is a line of no length.
        let again = points.first().filter(|_| points.len() == 1);
        let points = points.iter().chain(again);
        scene.polyline("train", points.map(|b| (x.at(b.x), y.at(b.mean))));
    }
    scene.polyline(
        "validation",
        chart.validation.iter().map(|p| (x.at(p.0), y.at(p.1))),
    );
    for point in buckets(&chart.train.concat(), 40) {
        let title = format!(
            "step {:.0}: training loss {}",
            point.x,
            units::loss(point.mean)
        );
        scene.circle("hit", (x.at(point.x), y.at(point.mean)), 7.0, title);
    }
    let dots = buckets(&chart.validation, 80);
    for point in &dots {
        let title = format!(
            "step {:.0}: validation loss {}",
            point.x,
            units::loss(point.mean)
        );
        scene.circle("dot", (x.at(point.x), y.at(point.mean)), 3.2, title);
    }
    scene.key("train", "training");
    if !chart.validation.is_empty() {
        scene.key("validation", "validation");
    }
    if !chart.abandoned.is_empty() {
        scene.key("lost", "lost steps");
    }
    if !chart.marks.is_empty() {
        scene.key("mark", "an attempt goes on");
    }
    Some(scene)
}
