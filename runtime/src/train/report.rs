//! Progress lines of one rank, appended whole to a file.

use super::TrainError;
use super::step::Outcome;
use crate::contract::metrics::{Kind, Line};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two steps that the log tells.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Writes progress lines, to nowhere if no file was named; the leading rank also tells them to its log.
pub struct Report {
    file: Option<(PathBuf, File)>,
    attempt: Option<u32>,
    /// Loss, norm, rate and tokens are rank 0's to tell.
    leads: bool,
    /// When the log told a step.
    told: Option<Instant>,
}

impl Report {
    /// Appends to `path`; `attempt` stands in each line.
    pub fn new(path: Option<&Path>, attempt: Option<u32>, rank: usize) -> Result<Self, TrainError> {
        let open = |path: &Path| {
            File::options()
                .append(true)
                .create(true)
                .open(path)
                .map_err(|error| TrainError::Progress {
                    path: path.display().to_string(),
                    error,
                })
        };
        let file = match path {
            Some(path) => Some((path.to_owned(), open(path)?)),
            None => None,
        };
        Ok(Report {
            file,
            attempt,
            leads: rank == 0,
            told: None,
        })
    }

    /// The lines of a step: a skipped one tells the parameter.
    pub fn step(&mut self, outcome: &Outcome, consumed_tokens: u64) -> Result<(), TrainError> {
        let kind = match outcome.bad {
            None => Kind::Step,
            Some(_) => Kind::Skip,
        };
        let mut line = Line::new(kind);
        line.step = Some(outcome.step);
        line.step_seconds = Some(outcome.seconds);
        line.phases = Some(outcome.phases.finish(outcome.seconds));
        if self.leads {
            line.tokens = Some(consumed_tokens);
            line.loss_bits = Some(Line::bits(outcome.loss));
            line.loss = Some(outcome.loss).filter(|x| x.is_finite());
            line.grad_norm = Some(outcome.grad_norm).filter(|x| x.is_finite());
            line.lr = Some(outcome.lr);
            line.text = outcome.bad.as_ref().map(|name| {
                format!("the gradient of `{name}` is not finite; the step was skipped")
            });
        }
        self.write(line)
    }

    /// A line that only rank 0 writes.
    pub fn lead(&mut self, line: Line) -> Result<(), TrainError> {
        if self.leads { self.write(line) } else { Ok(()) }
    }

    /// Tells a line on standard error, steps only now and then.
    fn log(&mut self, line: &Line) {
        if line.kind == Kind::Step {
            let now = Instant::now();
            if self.told.is_some_and(|told| now - told < LOG_EVERY) {
                return;
            }
            self.told = Some(now);
        }
        if let Some(words) = words(line) {
            eprintln!("{words}");
        }
    }

    /// Any line.
    pub fn write(&mut self, mut line: Line) -> Result<(), TrainError> {
        if self.leads {
            self.log(&line);
        }
        let Some((path, file)) = &mut self.file else {
            return Ok(());
        };
        line.attempt = self.attempt;
        line.time = Some(now());
        let mut text = serde_json::to_string(&line).unwrap_or_default();
        text.push('\n');
        file.write_all(text.as_bytes())
            .map_err(|error| TrainError::Progress {
                path: path.display().to_string(),
                error,
            })
    }
}

/// A line for people; absent for lines that hold figures only.
fn words(line: &Line) -> Option<String> {
    let step = line
        .step
        .map(|step| format!("step {step}"))
        .unwrap_or_default();
    let loss = line
        .loss
        .map_or("unknown".to_owned(), |loss| format!("{loss:.4}"));
    Some(match line.kind {
        Kind::Step => {
            let seconds = line.step_seconds.unwrap_or_default();
            format!("{step}: loss {loss}, {seconds:.3} s")
        }
        Kind::Eval => format!("{step}: validation loss {loss}"),
        Kind::Save => format!("{step}: checkpoint {}", line.path.as_deref()?),
        Kind::Skip | Kind::Note | Kind::Unknown => line.text.clone()?,
    })
}

/// The time now in RFC 3339, UTC, to the millisecond.
fn now() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    rfc3339(since.as_secs(), since.subsec_millis())
}

/// Seconds since 1970 as a date; the calendar by Howard Hinnant's `civil_from_days`.
fn rfc3339(seconds: u64, millis: u32) -> String {
    let (days, rest) = (seconds / 86400 + 719_468, seconds % 86400);
    let era = days / 146_097;
    let day = days % 146_097;
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let date = in_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{date:02}T{h:02}:{m:02}:{s:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(rfc3339(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(rfc3339(1_767_225_599, 999), "2025-12-31T23:59:59.999Z");
        assert_eq!(rfc3339(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }
}
