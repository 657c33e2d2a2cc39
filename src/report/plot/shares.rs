//! Parts of a whole as one bar.

use super::Scene;
use crate::report::document::Shares;
use crate::ui::units;

const WIDTH: f64 = 940.0;
const HEIGHT: f64 = 40.0;
/// Narrower parts carry no label.
const LABELLED: f64 = 64.0;

/// Absent when no part has a share.
pub fn shares(shares: &Shares) -> Option<Scene> {
    let total: f64 = shares.parts.iter().filter_map(|part| part.share).sum();
    if total <= 0.0 || !total.is_finite() {
        return None;
    }
    let label = format!("shares by {}", shares.title);
    let mut scene = Scene::new(&label, WIDTH, HEIGHT);
    let mut x = 0.0;
    for part in &shares.parts {
        let Some(share) = part.share.filter(|s| *s > 0.0) else {
            continue;
        };
        let width = share / total * WIDTH;
        let title = format!(
            "{}: {}, {}",
            part.label,
            units::duration(part.seconds),
            units::percent(share)
        );
        // A hair between the parts, but none that would hide a thin one.
        let gap = if width > 4.0 { 1.5 } else { 0.0 };
        let area = [x, 0.0, (width - gap).max(0.5), HEIGHT];
        scene.rect(&format!("part c{}", part.colour % 10), area, title);
        if width >= LABELLED {
            let middle = (x + (width - gap) / 2.0, HEIGHT / 2.0 + 4.5);
            let words = match width >= LABELLED + 7.0 * part.label.len() as f64 {
                true => format!("{} {}", part.label, units::percent(share)),
                false => units::percent(share),
            };
            scene.text("inside middle", middle, words);
        }
        x += width;
    }
    Some(scene)
}
