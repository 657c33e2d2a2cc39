//! The progress of one run: a bar on a terminal, plain lines elsewhere; both on standard error.

use super::style::Style;
use super::units;
use haul_runtime::contract::metrics::{Kind, Line};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// Plain lines come no more often than this, except the first and the last.
const PLAIN_EVERY: Duration = Duration::from_secs(5);
/// Weight of the newest step in the mean step time.
const NEWEST: f64 = 0.1;

/// Shows step, loss, tokens/s, step time and ETA of a run that somebody follows.
///
/// Dropping it leaves what is on the screen; nothing here touches the run.
pub struct RunBar {
    state: State,
    bar: Option<ProgressBar>,
    last_plain: Option<Instant>,
    /// Step of the last plain line.
    told: u64,
}

impl RunBar {
    /// `total`: steps of the whole run, absent when it ends otherwise (tokens, time). Without `interactive`,
    /// or when standard error is no terminal, plain lines are written.
    pub fn new(total: Option<u64>, interactive: bool) -> RunBar {
        use std::io::IsTerminal;
        let bar = (interactive && std::io::stderr().is_terminal()).then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(10);
            let bar = ProgressBar::with_draw_target(total, target);
            bar.set_style(template(total.is_some()));
            bar.set_message("waiting for the first step");
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        RunBar {
            state: State {
                total,
                speed: true,
                ..State::default()
            },
            bar,
            last_plain: None,
            told: 0,
        }
    }

    /// For ranks that share cores: no tokens/s is shown.
    pub fn without_speed(mut self) -> RunBar {
        self.state.speed = false;
        self
    }

    /// Takes a line of metrics.jsonl into account. Lines of several attempts may follow each other.
    pub fn update(&mut self, line: &Line) {
        self.state.update(line);
        match (&self.bar, line.kind) {
            (Some(bar), _) => {
                bar.set_position(self.state.step);
                bar.set_message(self.state.words());
            }
            (None, Kind::Eval) => {
                if let Some(loss) = line.loss {
                    let step = line.step.unwrap_or(self.state.step);
                    super::say(&format!(
                        "step {step}  validation loss {}",
                        units::loss(loss)
                    ));
                }
            }
            (None, Kind::Step | Kind::Skip) => {
                let due = self
                    .last_plain
                    .is_none_or(|last| last.elapsed() >= PLAIN_EVERY);
                if due || Some(self.state.step) == self.state.total {
                    self.last_plain = Some(Instant::now());
                    self.told = self.state.step;
                    super::say(&self.state.plain());
                }
            }
            (None, _) => {}
        }
    }

    /// What the run is doing while there are no steps: `queued`, `starting attempt 2`. Not kept on the screen.
    pub fn phase(&mut self, words: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(words.to_owned()),
            None => super::say(words),
        }
    }

    /// Writes something that happened above the bar, where it stays.
    pub fn event(&mut self, words: &str) {
        match &self.bar {
            Some(bar) => bar.println(words),
            None => super::say(words),
        }
    }

    /// Ends the display; the last state stays.
    pub fn finish(self) {
        match self.bar {
            Some(bar) if self.state.step > 0 => bar.abandon(),
            Some(bar) => bar.finish_and_clear(),
            None if self.state.step != self.told => super::say(&self.state.plain()),
            None => {}
        }
    }
}

fn template(bounded: bool) -> ProgressStyle {
    let colours = Style::stderr() != Style::PLAIN;
    let text = match (bounded, colours) {
        (true, true) => "{bar:24.cyan/dim} {pos}/{len}  {wide_msg}",
        (true, false) => "{bar:24} {pos}/{len}  {wide_msg}",
        (false, true) => "{spinner:.cyan} step {pos}  {wide_msg}",
        (false, false) => "{spinner} step {pos}  {wide_msg}",
    };
    ProgressStyle::with_template(text)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─")
}

/// What the lines so far say.
#[derive(Debug, Default)]
struct State {
    total: Option<u64>,
    speed: bool,
    step: u64,
    loss: Option<f64>,
    validation: Option<f64>,
    tokens: Option<(u64, u64)>,
    tokens_per_step: Option<f64>,
    step_seconds: Option<f64>,
    /// The only step time known is that of a first step after a launch.
    provisional: bool,
    attempt: Option<u32>,
}

impl State {
    fn update(&mut self, line: &Line) {
        match line.kind {
            Kind::Step | Kind::Skip => self.take_step(line),
            Kind::Eval => self.validation = line.loss.or(self.validation),
            _ => {}
        }
    }

    fn take_step(&mut self, line: &Line) {
        let fresh = line.attempt != self.attempt;
        self.attempt = line.attempt;
        let step = line.step.unwrap_or(self.step + 1);
        // What was told late of an earlier step is no news.
        if !fresh && step < self.step {
            return;
        }
        self.step = step;
        self.loss = line.loss.or(self.loss);
        if let Some(tokens) = line.tokens {
            if let Some((step, before)) = self.tokens.filter(|(step, _)| *step < self.step) {
                let steps = (self.step - step) as f64;
                self.tokens_per_step = Some(tokens.saturating_sub(before) as f64 / steps);
            }
            self.tokens = Some((self.step, tokens));
        }
        if let Some(seconds) = line.step_seconds {
            // The first step after a launch warms caches up: it counts only until there is another.
            let mean = self.step_seconds.filter(|_| !self.provisional || fresh);
            self.provisional = fresh && (self.provisional || mean.is_none());
            self.step_seconds = Some(match mean {
                Some(mean) if !fresh => mean + NEWEST * (seconds - mean),
                Some(mean) => mean,
                None => seconds,
            });
        }
    }

    fn parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if let Some(loss) = self.loss {
            parts.push(format!("loss {}", units::loss(loss)));
        }
        if let Some(loss) = self.validation {
            parts.push(format!("val {}", units::loss(loss)));
        }
        let seconds = self.step_seconds.filter(|s| *s > 0.0);
        if let (true, Some(tokens), Some(seconds)) = (self.speed, self.tokens_per_step, seconds) {
            parts.push(units::rate(tokens / seconds, "tokens/s"));
        }
        if let Some(seconds) = seconds {
            parts.push(format!("{}/step", units::duration(seconds)));
        }
        if let (Some(total), Some(seconds)) = (self.total, seconds) {
            let left = total.saturating_sub(self.step) as f64 * seconds;
            if left > 0.0 {
                parts.push(format!("ETA {}", units::duration(left.max(1.0))));
            }
        }
        parts
    }

    fn words(&self) -> String {
        self.parts().join(" · ")
    }

    fn plain(&self) -> String {
        let step = match self.total {
            Some(total) => format!("step {}/{total}", self.step),
            None => format!("step {}", self.step),
        };
        std::iter::once(step)
            .chain(self.parts())
            .collect::<Vec<_>>()
            .join("  ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(attempt: u32, step: u64, seconds: f64) -> Line {
        Line {
            attempt: Some(attempt),
            step: Some(step),
            tokens: Some(step * 1000),
            loss: Some(5.0 - step as f64 / 10.0),
            step_seconds: Some(seconds),
            ..Line::new(Kind::Step)
        }
    }

    #[test]
    fn a_line_says_step_loss_rate_step_time_and_eta() {
        let mut state = State {
            total: Some(12),
            speed: true,
            ..State::default()
        };
        state.update(&step(1, 1, 1.5));
        assert_eq!(
            state.plain(),
            "step 1/12  loss 4.9000  1.50 s/step  ETA 16.5 s"
        );
        state.update(&step(1, 2, 0.5));
        state.update(&Line {
            loss: Some(4.85),
            ..Line::new(Kind::Eval)
        });
        assert_eq!(
            state.plain(),
            "step 2/12  loss 4.8000  val 4.8500  2.00 k tokens/s  500 ms/step  ETA 5.00 s"
        );
        // A restarted attempt goes back; its slow first step does not count, and no rate is made of negative steps.
        state.update(&step(2, 2, 9.0));
        assert!(state.plain().contains("500 ms/step"), "{}", state.plain());
        state.update(&step(2, 12, 0.5));
        assert!(!state.plain().contains("ETA"), "{}", state.plain());
    }

    #[test]
    fn unknown_values_are_left_out() {
        let mut state = State::default();
        state.update(&Line::new(Kind::Step));
        assert_eq!(state.plain(), "step 1");
        state.update(&Line {
            step_seconds: Some(0.0),
            ..Line::new(Kind::Step)
        });
        assert_eq!(state.plain(), "step 2");
    }
}
