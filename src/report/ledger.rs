//! Where the time went: every second between the first submission and the last record in exactly one row.
//!
//! A job runs from its start by the scheduler's accounts, else from its supervisor's claim, to the last record of that supervisor. Within a job all times come from one
//! clock; between jobs clocks of several machines meet, so negative differences count as nothing.

use super::records::Records;
use super::steps::{Mark, Step, Steps};
use crate::store::accounts;
use crate::store::journal::{Class, Entry, Event};
use haul_runtime::contract::metrics::Line;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What time went into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Steps that count, saves and evaluations taken out.
    Productive,
    /// From the begin of a job to the first step of its first attempt.
    StartUp,
    /// From the last step before a failure to the first one after it.
    Restart,
    /// Steps that were computed and are not in the lineage.
    LostSteps,
    /// Steps that consumed data and left the state untouched.
    SkippedSteps,
    Saves,
    Evaluation,
    /// Everything else within jobs.
    Other,
    /// Submitted, not running.
    Queue,
    /// No job was submitted: between a job's end and the next submission.
    NoJob,
}

impl Cause {
    pub const ALL: [Cause; 10] = [
        Cause::Productive,
        Cause::StartUp,
        Cause::Restart,
        Cause::LostSteps,
        Cause::SkippedSteps,
        Cause::Saves,
        Cause::Evaluation,
        Cause::Other,
        Cause::Queue,
        Cause::NoJob,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Cause::Productive => "productive steps",
            Cause::StartUp => "start-up",
            Cause::Restart => "failure and restart",
            Cause::LostSteps => "lost steps",
            Cause::SkippedSteps => "skipped steps",
            Cause::Saves => "saves",
            Cause::Evaluation => "evaluation",
            Cause::Other => "other",
            Cause::Queue => "queue",
            Cause::NoJob => "no job",
        }
    }

    pub fn means(self) -> &'static str {
        match self {
            Cause::Productive => "steps that count, without saves and evaluations",
            Cause::StartUp => "from a job's begin to its first step",
            Cause::Restart => "from the last step before a failure to the next step",
            Cause::LostSteps => "computed, then begun again at an older checkpoint",
            Cause::SkippedSteps => "data consumed, state untouched",
            Cause::Saves => "steps waiting for checkpoints",
            Cause::Evaluation => "steps waiting for the held-out split",
            Cause::Other => "the rest within jobs: between steps, leaving",
            Cause::Queue => "submitted, not running; not part of the wall time",
            Cause::NoJob => "nothing submitted that could start; not part of the wall time",
        }
    }

    /// Within jobs, so part of the wall time.
    pub fn in_job(self) -> bool {
        !matches!(self, Cause::Queue | Cause::NoJob)
    }
}

/// The ledger of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Ledger {
    /// Rows with time in them, in the order of [`Cause::ALL`].
    pub rows: Vec<Row>,
    /// Sum of the rows within jobs: wall time without queue.
    pub wall_seconds: f64,
    /// Productive time / wall time without queue; unknown when no step has a time.
    pub goodput: Option<f64>,
    pub lost_steps: usize,
    /// From the first submission to the begin of the first step.
    pub to_first_step_seconds: Option<f64>,
    #[serde(skip)]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Row {
    pub cause: Cause,
    pub seconds: f64,
    /// Share of the wall time; absent outside of jobs.
    pub share: Option<f64>,
}

/// One job: the reign of one supervisor.
#[derive(Debug, Default)]
struct Job {
    submitted: Option<f64>,
    /// Since when only the queue keeps it from starting, where that is known.
    eligible: Option<f64>,
    begin: f64,
    end: f64,
    attempts: Vec<Span>,
}

#[derive(Debug)]
struct Span {
    number: u32,
    begin: f64,
    launched: f64,
    judged: Option<f64>,
}

impl Ledger {
    pub fn of(records: &Records, steps: &Steps) -> Ledger {
        let jobs = jobs(records, steps);
        let mut account = Account::default();
        let mut before: Option<f64> = None;
        for (i, job) in jobs.iter().enumerate() {
            let eligible = job.eligible.or(job.submitted);
            if let Some(eligible) = eligible {
                let free = before.map_or(eligible, |end| end.max(eligible));
                account.add(Cause::Queue, job.begin - free);
            }
            if let Some(from) = before.or(job.submitted) {
                account.add(Cause::NoJob, eligible.unwrap_or(job.begin) - from);
            }
            // A supervisor that was given up may have written on while its successor ran.
            let next = jobs.get(i + 1).map_or(f64::INFINITY, |next| next.begin);
            account.job(job, job.end.min(next).max(job.begin), records, steps);
            before = Some(job.end.min(next).max(job.begin));
        }
        let first_step = jobs.iter().flat_map(|job| &job.attempts).find_map(|span| {
            let mut of_attempt = steps.steps.iter().filter(|s| s.attempt == span.number);
            Some((of_attempt.next()?, span.launched))
        });
        // Where the lines of the first steps are missing, nobody knows when they began.
        let first_step = first_step
            .filter(|(first, _)| first.step <= 1)
            .and_then(|(first, launched)| begin_of(first, launched));
        let submitted = jobs.first().and_then(|job| job.submitted);
        let known = steps.kept().any(|s| s.seconds.is_some());
        account.ledger(
            known,
            steps.steps.iter().filter(|s| !s.kept).count(),
            submitted
                .zip(first_step)
                .map(|(from, to)| (to - from).max(0.0)),
        )
    }

    /// Seconds of one row; 0 when it is absent.
    pub fn seconds(&self, cause: Cause) -> f64 {
        let row = self.rows.iter().find(|row| row.cause == cause);
        row.map_or(0.0, |row| row.seconds)
    }
}

#[derive(Default)]
struct Account {
    parts: BTreeMap<Cause, f64>,
    /// Seconds by which steps exceed the time in which they ran.
    excess: f64,
}

impl Account {
    fn add(&mut self, cause: Cause, seconds: f64) {
        if seconds.is_finite() && seconds > 0.0 {
            *self.parts.entry(cause).or_default() += seconds;
        }
    }

    fn job(&mut self, job: &Job, end: f64, records: &Records, steps: &Steps) {
        let mut cursor = job.begin;
        let mut failed = false;
        for (i, span) in job.attempts.iter().enumerate() {
            let until = job
                .attempts
                .get(i + 1)
                .map_or(end, |next| next.begin)
                .min(span.judged.unwrap_or(f64::INFINITY))
                .max(cursor);
            let arrival = match failed {
                true => Cause::Restart,
                false => Cause::StartUp,
            };
            failed = match records.verdict(span.number) {
                Some(verdict) => matches!(
                    verdict.class,
                    Class::Failed | Class::BadCheckpoint | Class::AllUnreadable | Class::Never
                ),
                None => i + 1 < job.attempts.len(),
            };
            cursor = self.attempt(span, cursor, until, arrival, failed, steps);
        }
        let rest = if failed { Cause::Restart } else { Cause::Other };
        self.add(rest, end - cursor);
    }

    /// Accounts for `from` to `until`; returns `until`.
    fn attempt(
        &mut self,
        span: &Span,
        from: f64,
        until: f64,
        arrival: Cause,
        failed: bool,
        steps: &Steps,
    ) -> f64 {
        let of_attempt: Vec<&Step> = steps
            .steps
            .iter()
            .filter(|s| s.attempt == span.number)
            .collect();
        let (Some(first), Some(last)) = (of_attempt.first(), of_attempt.last()) else {
            self.add(arrival, until - from);
            return until;
        };
        let begin = begin_of(first, span.launched)
            .unwrap_or(span.launched)
            .clamp(from, until);
        let last = moment(&last.line, span.launched)
            .unwrap_or(until)
            .clamp(begin, until);
        let busy: f64 = of_attempt.iter().map(|step| self.step(step)).sum();
        // Lines are timed when they arrive: a first one that came late must not push its step out of the attempt.
        let begin = begin.min(last - busy).max(from);
        self.add(arrival, begin - from);
        let stepping = if failed { last } else { until };
        let mut rest = stepping - begin - busy;
        self.excess += (-rest).max(0.0);
        for (marks, phase, cause) in [
            (&steps.saves, "save", Cause::Saves),
            (&steps.evaluations, "eval", Cause::Evaluation),
        ] {
            let apart = apart(marks, phase, span.number, &of_attempt).min(rest.max(0.0));
            self.add(cause, apart);
            rest -= apart;
        }
        self.add(Cause::Other, rest);
        if failed {
            self.add(Cause::Restart, until - last);
        }
        until
    }

    /// Accounts for one step; returns its seconds.
    fn step(&mut self, step: &Step) -> f64 {
        let Some(productive) = step.productive() else {
            return 0.0;
        };
        let cause = match (step.kept, step.skipped) {
            (false, _) => Cause::LostSteps,
            (true, true) => Cause::SkippedSteps,
            (true, false) => Cause::Productive,
        };
        let (save, eval) = (step.phase("save"), step.phase("eval"));
        self.add(cause, productive);
        self.add(Cause::Saves, save);
        self.add(Cause::Evaluation, eval);
        productive + save + eval
    }

    fn ledger(self, known: bool, lost_steps: usize, to_first_step: Option<f64>) -> Ledger {
        let inside = |cause: &Cause| cause.in_job();
        let wall: f64 = Cause::ALL
            .iter()
            .filter(|c| inside(c))
            .filter_map(|c| self.parts.get(c))
            .sum();
        let rows = Cause::ALL
            .iter()
            .filter_map(|cause| {
                let seconds = *self.parts.get(cause)?;
                Some(Row {
                    cause: *cause,
                    seconds,
                    share: (cause.in_job() && wall > 0.0).then(|| seconds / wall),
                })
            })
            .collect();
        let productive = self.parts.get(&Cause::Productive).copied().unwrap_or(0.0);
        let mut warnings = Vec::new();
        if self.excess > 0.01 * wall + 0.1 {
            warnings.push(format!(
                "steps and saves take {:.2} s more than the time between launch and end; clocks or step times are wrong",
                self.excess
            ));
        }
        Ledger {
            rows,
            wall_seconds: wall,
            goodput: (known && wall > 0.0).then(|| productive / wall),
            lost_steps,
            to_first_step_seconds: to_first_step,
            warnings,
        }
    }
}

/// Seconds of saves or evaluations of `attempt` that no step has in its phases.
fn apart(marks: &[Mark], phase: &str, attempt: u32, steps: &[&Step]) -> f64 {
    let told: BTreeSet<u64> = steps
        .iter()
        .filter(|step| step.phase(phase) > 0.0)
        .map(|step| step.step)
        .collect();
    // A save after step s may be told with s or with the step that waited for it.
    let inside = |step: u64| told.contains(&step) || told.contains(&step.saturating_add(1));
    marks
        .iter()
        .filter(|mark| mark.attempt == attempt && !inside(mark.step))
        .filter_map(|mark| mark.line.seconds.filter(|s| s.is_finite() && *s > 0.0))
        .sum()
}

fn jobs(records: &Records, steps: &Steps) -> Vec<Job> {
    let mut epochs: BTreeMap<u64, Vec<&Entry>> = BTreeMap::new();
    for entry in &records.entries {
        epochs.entry(entry.epoch).or_default().push(entry);
    }
    let mut jobs: Vec<Job> = epochs
        .values()
        .filter_map(|entries| job(entries, records))
        .collect();
    let known: Vec<u32> = jobs
        .iter()
        .flat_map(|job| job.attempts.iter().map(|span| span.number))
        .collect();
    // Attempts without journal are jobs of their own, known by their lines only.
    for (number, attempt) in &records.attempts {
        if known.contains(number) {
            continue;
        }
        let mut own = steps.steps.iter().filter(|s| s.attempt == *number);
        let Some(begin) = own.next().and_then(|first| {
            let end = clock(first.line.time.as_deref())?;
            Some(end - first.elapsed.or(first.seconds).unwrap_or(0.0))
        }) else {
            continue;
        };
        let times = attempt.lines.iter().filter_map(|l| moment(l, begin));
        jobs.push(Job {
            submitted: None,
            eligible: None,
            begin,
            end: times.fold(begin, f64::max),
            attempts: vec![Span {
                number: *number,
                begin,
                launched: begin,
                judged: None,
            }],
        });
    }
    jobs.sort_by(|a, b| a.begin.total_cmp(&b.begin));
    jobs
}

fn job(entries: &[&Entry], records: &Records) -> Option<Job> {
    let first = entries
        .iter()
        .find(|e| matches!(e.event, Event::Claimed { .. } | Event::Attempt { .. }))?;
    let begin = clock(Some(&first.time))?;
    let slot = match &first.event {
        Event::Claimed { slot, .. } | Event::Attempt { slot, .. } => *slot,
        _ => return None,
    };
    let account = account(records, slot, first);
    let started = account
        .and_then(|account| account.started)
        .map(|at| at as f64);
    // Whole seconds of another machine's clock.
    let begin = started.map_or(begin, |started| started.min(begin));
    let submitted = submitted(records, slot);
    let eligible = account
        .and_then(|account| account.eligible)
        .map(|at| at as f64);
    let mut job = Job {
        submitted,
        eligible: eligible.map(|at| submitted.map_or(at, |from| from.max(at)).min(begin)),
        begin,
        end: begin,
        attempts: Vec::new(),
    };
    for entry in entries {
        let Some(time) = clock(Some(&entry.time)) else {
            continue;
        };
        job.end = job.end.max(time);
        match &entry.event {
            Event::Attempt { attempt, .. } => job.attempts.push(Span {
                number: *attempt,
                begin: time,
                launched: time,
                judged: None,
            }),
            Event::Launched { attempt, .. } => {
                if let Some(span) = job.attempts.iter_mut().find(|s| s.number == *attempt) {
                    span.launched = time;
                }
            }
            Event::Judged { attempt, .. } => {
                if let Some(span) = job.attempts.iter_mut().find(|s| s.number == *attempt) {
                    span.judged = Some(time);
                }
            }
            _ => {}
        }
    }
    for span in &job.attempts {
        let lines = records.attempts.get(&span.number).map(|a| &a.lines);
        for line in lines.into_iter().flatten() {
            if let Some(time) = moment(line, span.launched) {
                job.end = job.end.max(time);
            }
        }
    }
    Some(job)
}

/// What accounting tells of the start that `first` belongs to.
fn account<'a>(records: &'a Records, slot: u32, first: &Entry) -> Option<&'a accounts::Account> {
    let Event::Claimed { job, restart, .. } = &first.event else {
        return None;
    };
    let starts = records.accounts.as_ref()?.get(&slot)?;
    let mut own = starts.iter().filter(|start| start.job == *job);
    own.nth(*restart as usize)
}

fn submitted(records: &Records, slot: u32) -> Option<f64> {
    let find = |wanted: fn(&Event) -> Option<u32>| {
        records.entries.iter().find_map(|entry| {
            (wanted(&entry.event) == Some(slot))
                .then(|| clock(Some(&entry.time)))
                .flatten()
        })
    };
    let accepted = find(|event| match event {
        Event::Submitted { slot, .. } => Some(*slot),
        _ => None,
    });
    accepted.or_else(|| {
        find(|event| match event {
            Event::Intent { slot, .. } => Some(*slot),
            _ => None,
        })
    })
}

/// When a step began, on the clock of `launched`.
fn begin_of(step: &Step, launched: f64) -> Option<f64> {
    Some(moment(&step.line, launched)? - step.seconds.unwrap_or(0.0))
}

/// When a line was written: by the seconds since launch, else by its own clock.
fn moment(line: &Line, launched: f64) -> Option<f64> {
    match line.elapsed.filter(|e| e.is_finite() && *e >= 0.0) {
        Some(elapsed) => Some(launched + elapsed),
        None => clock(line.time.as_deref()),
    }
}

/// Seconds since 1970 of an RFC 3339 time.
pub(super) fn clock(time: Option<&str>) -> Option<f64> {
    let time = chrono::DateTime::parse_from_rfc3339(time?).ok()?;
    Some(time.timestamp_millis() as f64 / 1e3)
}
