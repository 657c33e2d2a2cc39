//! Step times: over steps to the left, their distribution to the right, on one axis of seconds.

use super::axis::{Axis, frame};
use super::{Scene, buckets};
use crate::report::document::StepChart;
use crate::ui::units;

const WIDTH: f64 = 940.0;
const HEIGHT: f64 = 260.0;
const BOTTOM: f64 = HEIGHT - 44.0;
const TOP: f64 = 30.0;
/// Right edge of the curve, and both edges of the distribution.
const CURVE: f64 = 760.0;
const BARS: (f64, f64) = (790.0, WIDTH - 14.0);
const BINS: usize = 32;
/// More steps than this are drawn as the range of each bucket.
const DOTS: usize = 700;

/// Absent for fewer than two steps.
pub fn steps(chart: &StepChart) -> Option<Scene> {
    if chart.points.len() < 2 {
        return None;
    }
    let least = chart
        .points
        .iter()
        .map(|p| p.1)
        .fold(f64::INFINITY, f64::min);
    let most = chart.points.iter().map(|p| p.1).fold(0.0, f64::max);
    // Few outliers are marked at the edge instead of flattening the rest.
    let spread = (chart.p95 - chart.p5).max(chart.median * 0.02);
    let high = most.min(chart.p95 + 3.0 * spread);
    let low = least.max(chart.p5 - 3.0 * spread);
    let last = chart.points.iter().map(|p| p.0).fold(1.0, f64::max);
    let x = Axis::whole(0.0, last, 6, 64.0, CURVE);
    let y = Axis::round(low, high, 4, BOTTOM, TOP);
    let mut scene = Scene::new("seconds a step", WIDTH, HEIGHT);
    frame(&mut scene, &x, &y, ("step", "seconds a step"), Axis::label);

    let band = (y.at(chart.p95), y.at(chart.p5));
    let title = format!(
        "p5 to p95: {} to {}",
        units::duration(chart.p5),
        units::duration(chart.p95)
    );
    scene.rect(
        "band",
        [
            x.at(0.0),
            band.0,
            CURVE - x.at(0.0),
            (band.1 - band.0).max(1.0),
        ],
        title,
    );
    if chart.points.len() <= DOTS {
        for (step, seconds) in &chart.points {
            let title = format!("step {step:.0}: {}", units::duration(*seconds));
            dot(&mut scene, (x.at(*step), *seconds), &y, title);
        }
    } else {
        ranges(chart, &x, &y, &mut scene);
    }
    let at = y.at(chart.median);
    let title = format!("median {}", units::duration(chart.median));
    scene.line("median", (x.at(0.0), at), (BARS.1, at), title);
    distribution(chart, &y, (low, high), &mut scene);
    scene.key("range", "step time");
    if most > y.high() {
        scene.key("over", "above the axis");
    }
    scene.key(
        "median",
        format!("median {}", units::duration(chart.median)),
    );
    scene.key("band", "p5 to p95");
    Some(scene)
}

/// A step; one above the axis stands at its edge in another colour.
fn dot(scene: &mut Scene, at: (f64, f64), y: &Axis, title: String) {
    let class = match at.1 > y.high() {
        true => "step over",
        false => "step",
    };
    scene.circle(class, (at.0, y.at(at.1)), 2.0, title);
}

/// Of many steps the range of each bucket without its outer tenths, and the slowest of it.
fn ranges(chart: &StepChart, x: &Axis, y: &Axis, scene: &mut Scene) {
    for b in buckets(&chart.points, 240) {
        let at = x.at(b.x);
        let title = format!(
            "around step {:.0}: {} to {}",
            b.x,
            units::duration(b.low),
            units::duration(b.high)
        );
        let (top, bottom) = (y.at(b.high) - 0.75, y.at(b.low) + 0.75);
        scene.line("range", (at, top), (at, bottom), title);
        let title = format!(
            "slowest around step {:.0}: {}",
            b.x,
            units::duration(b.most)
        );
        dot(scene, (at, b.most), y, title);
    }
}

fn distribution(chart: &StepChart, y: &Axis, range: (f64, f64), scene: &mut Scene) {
    let (low, high) = range;
    let width = (high - low) / BINS as f64;
    if width <= 0.0 {
        return;
    }
    let mut bins = [0usize; BINS];
    for (_, seconds) in &chart.points {
        let bin = ((seconds - low) / width).clamp(0.0, (BINS - 1) as f64);
        bins[bin as usize] += 1;
    }
    let most = bins.iter().copied().max().unwrap_or(1).max(1) as f64;
    for (i, count) in bins.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (from, to) = (low + i as f64 * width, low + (i + 1) as f64 * width);
        let length = (BARS.1 - BARS.0) * *count as f64 / most;
        let (top, bottom) = (y.at(to), y.at(from));
        let title = format!(
            "{count} steps of {} to {}",
            units::duration(from),
            units::duration(to)
        );
        let height = (bottom - top - 0.6).max(0.8);
        scene.rect("bin", [BARS.0, top, length.max(1.0), height], title);
    }
    scene.line("axis", (BARS.0, TOP), (BARS.0, BOTTOM), "");
    scene.text("name end", (BARS.1, BOTTOM + 19.0), "distribution");
}
