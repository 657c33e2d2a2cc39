//! Axes: a linear scale with ticks at round numbers, a frame with grid and labels.

use super::Scene;

/// Values `low` to `high` on pixels `from` to `to`.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    pub ticks: Vec<f64>,
    step: f64,
}

impl Axis {
    /// An axis whose ends are ticks: 1, 2 or 5 x a power of ten apart, about `wanted` of them.
    pub fn round(low: f64, high: f64, wanted: usize, from: f64, to: f64) -> Axis {
        let (low, high) = spread(low, high);
        let step = tick_step(high - low, wanted);
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        Axis {
            low: first * step,
            high: last * step,
            from,
            to,
            ticks: ticks(first, last, step),
            step,
        }
    }

    /// An axis of whole numbers from `low` to `high` exactly, with the round ticks between them.
    pub fn whole(low: f64, high: f64, wanted: usize, from: f64, to: f64) -> Axis {
        let (low, high) = spread(low, high);
        let step = tick_step(high - low, wanted).max(1.0);
        let slack = step * 1e-9;
        let (first, last) = (
            ((low - slack) / step).ceil(),
            ((high + slack) / step).floor(),
        );
        Axis {
            low,
            high,
            from,
            to,
            ticks: ticks(first, last, step),
            step,
        }
    }

    /// Pixel of `value`; values outside stand at the end.
    pub fn at(&self, value: f64) -> f64 {
        let t = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + t * (self.to - self.from)
    }

    pub fn high(&self) -> f64 {
        self.high
    }

    /// A tick with as many digits as tell it from its neighbour.
    pub fn label(&self, tick: f64) -> String {
        let digits = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        format!("{tick:.digits$}")
    }

    /// Whole numbers with a prefix where they are large: `1500`, `20 k`.
    pub fn count(&self, tick: f64) -> String {
        let (scale, unit) = match self.high {
            h if h >= 5e6 => (1e6, " M"),
            h if h >= 2e4 => (1e3, " k"),
            _ => (1.0, ""),
        };
        let digits = (-(self.step / scale).log10().floor()).clamp(0.0, 3.0) as usize;
        match tick {
            0.0 => "0".into(),
            _ => format!("{:.digits$}{unit}", tick / scale),
        }
    }
}

fn spread(low: f64, high: f64) -> (f64, f64) {
    match (low.is_finite() && high.is_finite(), high > low) {
        (false, _) => (0.0, 1.0),
        (true, true) => (low, high),
        // A single value stands in the middle.
        (true, false) => {
            let half = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
            (low - half, low + half)
        }
    }
}

fn tick_step(range: f64, wanted: usize) -> f64 {
    let raw = range / wanted.max(1) as f64;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|s| s * power >= raw * 0.999);
    step.unwrap_or(10.0) * power
}

fn ticks(first: f64, last: f64, step: f64) -> Vec<f64> {
    let count = (last - first).clamp(0.0, 100.0) as usize;
    (0..=count).map(|i| (first + i as f64) * step).collect()
}

/// Grid, tick labels and axis titles of a chart.
pub(super) fn frame(
    scene: &mut Scene,
    x: &Axis,
    y: &Axis,
    labels: (&str, &str),
    unit: fn(&Axis, f64) -> String,
) {
    for tick in &y.ticks {
        let at = y.at(*tick);
        scene.line("grid", (x.from, at), (x.to, at), "");
        scene.text("tick end", (x.from - 8.0, at + 4.0), unit(y, *tick));
    }
    scene.line("axis", (x.from, y.from), (x.to, y.from), "");
    for tick in &x.ticks {
        let at = x.at(*tick);
        scene.line("axis", (at, y.from), (at, y.from + 5.0), "");
        scene.text("tick middle", (at, y.from + 19.0), x.count(*tick));
    }
    scene.text("name end", (x.to, y.from + 36.0), labels.0);
    scene.text("name", (2.0, y.to - 14.0), labels.1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        let axis = Axis::round(2.13, 5.61, 5, 100.0, 0.0);
        assert_eq!(axis.ticks, [2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!((axis.at(2.0), axis.at(6.0)), (100.0, 0.0));
        assert_eq!(axis.label(3.0), "3");
        let axis = Axis::round(0.412, 0.438, 5, 0.0, 1.0);
        let labels: Vec<_> = axis.ticks.iter().map(|t| axis.label(*t)).collect();
        assert_eq!(labels, ["0.41", "0.42", "0.43", "0.44"]);
        let axis = Axis::whole(1.0, 600.0, 6, 0.0, 1.0);
        assert_eq!(axis.ticks, [100.0, 200.0, 300.0, 400.0, 500.0, 600.0]);
        let axis = Axis::whole(0.0, 120_000.0, 6, 0.0, 1.0);
        assert_eq!(axis.count(axis.ticks[1]), "20 k");
    }

    #[test]
    fn any_range_gives_finite_places() {
        for (low, high) in [
            (1.0, 1.0),
            (0.0, 0.0),
            (f64::INFINITY, f64::NEG_INFINITY),
            (-3.0, 1e12),
            (1e-9, 2e-9),
        ] {
            for axis in [
                Axis::round(low, high, 5, 0.0, 9.0),
                Axis::whole(low, high, 5, 0.0, 9.0),
            ] {
                assert!(axis.ticks.len() < 20, "{axis:?}");
                assert!((0.0..=9.0).contains(&axis.at(low.max(-1e300))), "{axis:?}");
            }
        }
    }
}
