//! Who failed first and how, in words: from the evidence of an attempt to its verdict.
//!
//! A rank that lost its peers exits after the one that died, and its report may overtake the other's; so the
//! strongest evidence within [`WINDOW`] of the first counts, and among equals the earliest.

use super::verdict::{Class, Verdict};
use haul_runtime::contract::exit::TrainerExit;
use std::time::Duration;

/// Evidence later than this after the first is a consequence.
pub const WINDOW: Duration = Duration::from_secs(1);
/// Characters that a verdict keeps of what a rank said.
const WORDS: usize = 240;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Code(i32),
    Signal(i32),
}

/// The end of a rank's program; `asked` when its shim had begun to end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    pub status: Status,
    pub asked: bool,
}

/// Something that went wrong without having been asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// The program of a rank ended; code 0 and 75 are no sign.
    Exited(Status),
    /// The program could not be started.
    NotStarted(String),
    /// The node's launcher saw the rank's shim end.
    ShimGone(Status),
    /// The connection to the shim closed before the program's end was told.
    Lost,
    /// Nothing was heard from the shim for so long; without a rank from any shim of the node.
    Silent(Duration),
    /// The shim did not report within so long after the launch.
    NoHello(Duration),
    /// The launcher of a node ended with ranks running.
    NodeGone(Status),
    /// A node's launcher could not be started.
    LaunchFailed(String),
    /// Its shim ended the program without having been told to by the supervisor.
    EndedByShim,
    /// Another rank has left with code 75, this one did not follow.
    StaysBehind(Duration),
}

/// A sign, who gave it and when it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    pub at: Duration,
    /// Absent when it concerns a node.
    pub rank: Option<usize>,
    pub node: Option<String>,
    /// Last step of the rank, or of any rank.
    pub step: Option<u64>,
    pub sign: Sign,
    /// What the rank itself said before.
    pub trouble: Option<Trouble>,
}

/// Why a rank failed, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub words: String,
    /// The other rank that is to blame.
    pub peer: Option<Peer>,
}

/// A rank and its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub rank: usize,
    pub node: String,
}

/// What was asked of the attempt from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Save and leave.
    Stop,
    /// Save and leave, the time limit is near.
    Limit,
    /// Leave at once: a person cancels the run.
    Cancel,
    /// Leave at once: the supervisor got this signal.
    Terminate(i32),
}

/// All that decides a verdict.
#[derive(Debug)]
pub struct Account<'a> {
    /// Exit of each rank's program that was told.
    pub ends: &'a [Option<End>],
    pub evidence: &'a [Evidence],
    pub request: Option<Request>,
    /// It was given a checkpoint.
    pub loaded: bool,
    /// Step of its newest checkpoint, where that is newer than the one it was given.
    pub saved: Option<u64>,
    /// Last step seen of any rank.
    pub step: Option<u64>,
    /// Last step seen of all ranks that tell their steps; those of a loose program differ.
    pub common: Option<u64>,
}

/// The verdict; its `log` is empty.
pub fn classify(account: &Account<'_>) -> Verdict {
    let step = account.step;
    let plain = |class, words: String| Verdict {
        class,
        words,
        rank: None,
        node: None,
        code: None,
        signal: None,
        step,
        log: Vec::new(),
    };
    let all = |accepted: &[i32]| {
        account.ends.iter().all(|end| {
            matches!(end, Some(End { status: Status::Code(code), .. }) if accepted.contains(code))
        })
    };
    // A program may answer TERM with code 0, which is no end of training.
    let asked = account.ends.iter().flatten().any(|end| end.asked);
    if all(&[0]) && !asked {
        return plain(Class::Done, format!("finished{}", at_step(step)));
    }
    if account.evidence.is_empty() && all(&[0, 75]) && !(asked && all(&[0])) {
        // An exit code claims that a checkpoint was saved; only one that was seen is told.
        let (saved, else_) = match account.saved {
            Some(at) if account.common.is_none_or(|step| at >= step) => {
                ("saved and ", String::new())
            }
            Some(at) => ("", format!(", its newest checkpoint is of step {at}")),
            None => ("", ", without a new checkpoint".to_owned()),
        };
        let (class, end) = match account.request {
            Some(Request::Cancel) => {
                return plain(Class::Cancelled, format!("cancelled{}", at_step(step)));
            }
            Some(Request::Limit) => (Class::Stopped, "stopped before the time limit"),
            Some(_) => (Class::Stopped, "stopped on request"),
            None => (Class::Again, "asks to be started again"),
        };
        return plain(class, format!("{saved}{end}{}{else_}", at_step(step)));
    }
    match account.request {
        Some(Request::Cancel) => {
            return plain(Class::Cancelled, format!("cancelled{}", at_step(step)));
        }
        Some(Request::Terminate(signal)) if account.evidence.is_empty() => {
            return plain(
                Class::Failed,
                format!(
                    "ended by {} to the supervisor{}, nothing saved on the way",
                    signal_name(signal),
                    at_step(step)
                ),
            );
        }
        Some(Request::Stop | Request::Limit)
            if account.evidence.is_empty() && account.ends.iter().all(Option::is_none) =>
        {
            return plain(Class::Stopped, "stopped before it had started".into());
        }
        _ => {}
    }
    match culprit(account.evidence) {
        Some(evidence) => accuse(evidence, account),
        None => plain(
            Class::Failed,
            format!("ended{} without a reason seen", at_step(step)),
        ),
    }
}

/// The evidence that explains the others.
fn culprit(evidence: &[Evidence]) -> Option<&Evidence> {
    let first = evidence.iter().map(|e| e.at).min()?;
    let near = || evidence.iter().filter(|e| e.at <= first + WINDOW);
    let worst = near().max_by_key(|e| (weight(&e.sign), std::cmp::Reverse(e.at)))?;
    // A rank that blames another is believed, and what is known of that one says more.
    let Some(peer) = blamed(worst) else {
        return Some(worst);
    };
    let own = near().filter(|e| e.rank == Some(peer.rank) && blamed(e).is_none());
    own.max_by_key(|e| (weight(&e.sign), std::cmp::Reverse(e.at)))
        .or(Some(worst))
}

/// The rank that a failed one holds to be the cause.
fn blamed(evidence: &Evidence) -> Option<&Peer> {
    match evidence.sign {
        Sign::Exited(Status::Code(code))
            if matches!(TrainerExit::from(code), TrainerExit::Failed(_)) =>
        {
            evidence.trouble.as_ref()?.peer.as_ref()
        }
        _ => None,
    }
}

/// Of a rank that others blame and of which nothing else is known.
fn told_by(evidence: &Evidence, peer: &Peer, step: Option<u64>) -> Verdict {
    let said = evidence.trouble.as_ref().map_or("", |t| &t.words);
    let what = match said.strip_prefix(&format!("rank {} ", peer.rank)) {
        Some(what) => short(what),
        None => format!("failed ({})", short(said)),
    };
    let by = evidence.rank.unwrap_or_default();
    Verdict {
        class: Class::Failed,
        words: format!(
            "rank {} on {} {what}, says rank {by}{}",
            peer.rank,
            peer.node,
            at_step(step)
        ),
        rank: Some(peer.rank),
        node: Some(peer.node.clone()),
        code: None,
        signal: None,
        step,
        log: Vec::new(),
    }
}

/// One line of at most [`WORDS`] characters.
fn short(words: &str) -> String {
    let line: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(WORDS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Causes weigh more than what follows from them.
fn weight(sign: &Sign) -> u8 {
    match sign {
        Sign::LaunchFailed(_) => 7,
        Sign::NodeGone(_) => 6,
        Sign::ShimGone(_) => 5,
        Sign::NotStarted(_) | Sign::Exited(Status::Signal(_)) => 4,
        Sign::Exited(Status::Code(76 | 93)) => 3,
        Sign::Silent(_) | Sign::NoHello(_) => 2,
        Sign::Exited(Status::Code(_)) => 1,
        Sign::Lost | Sign::StaysBehind(_) | Sign::EndedByShim => 0,
    }
}

fn accuse(evidence: &Evidence, account: &Account<'_>) -> Verdict {
    let step = evidence.step.or(account.step);
    if let Some(peer) = blamed(evidence) {
        return told_by(evidence, peer, step);
    }
    let node = evidence.node.as_deref();
    let who = match evidence.rank {
        Some(rank) => format!(
            "rank {rank}{}",
            node.map(|n| format!(" on {n}")).unwrap_or_default()
        ),
        None => format!("node {}", node.unwrap_or("?")),
    };
    let at = at_step(step);
    let said = match &evidence.trouble {
        Some(trouble) => format!(": {}", short(&trouble.words)),
        None => String::new(),
    };
    let (class, words, status) = match &evidence.sign {
        Sign::Exited(Status::Code(code)) => match TrainerExit::from(*code) {
            TrainerExit::BadCheckpoint if account.loaded => (
                Class::BadCheckpoint,
                format!("{who} says that its checkpoint is unreadable (exit code 76){said}"),
                Some(Status::Code(*code)),
            ),
            TrainerExit::BadCheckpoint => (
                Class::Failed,
                format!(
                    "{who} says that its checkpoint is unreadable (exit code 76), but it was given none{said}"
                ),
                Some(Status::Code(*code)),
            ),
            TrainerExit::Never => (
                Class::Never,
                format!("{who} asks not to be started again (exit code 93){at}{said}"),
                Some(Status::Code(*code)),
            ),
            // Another attempt would find the same.
            TrainerExit::Failed(126 | 127) if step.is_none() => (
                Class::Never,
                format!(
                    "{who} exited with code {code} before its first step: its command was not found or cannot be executed"
                ),
                Some(Status::Code(*code)),
            ),
            _ => (
                Class::Failed,
                format!("{who} exited with code {code}{at}{said}"),
                Some(Status::Code(*code)),
            ),
        },
        Sign::Exited(status @ Status::Signal(signal)) => (
            Class::Failed,
            format!("{who} was killed by {}{at}", signal_name(*signal)),
            Some(*status),
        ),
        Sign::NotStarted(why) => (Class::Never, format!("{who} could not start: {why}"), None),
        Sign::ShimGone(status @ Status::Signal(signal)) => (
            Class::Failed,
            format!(
                "the shim of {who} was killed by {}{at}",
                signal_name(*signal)
            ),
            Some(*status),
        ),
        // A shim leaves like this only when its program has ended, which it would have told.
        Sign::ShimGone(Status::Code(code @ (0 | 75))) => (
            Class::Failed,
            format!(
                "the connection to {who} was lost{at}; its program ended unheard, with code {code}"
            ),
            Some(Status::Code(*code)),
        ),
        Sign::ShimGone(Status::Code(code)) => (
            Class::Failed,
            format!("the shim of {who} exited with code {code} before its program had ended{at}"),
            Some(Status::Code(*code)),
        ),
        Sign::Lost => (
            Class::Failed,
            format!("the connection to the shim of {who} was lost{at}"),
            None,
        ),
        Sign::EndedByShim => (
            Class::Failed,
            format!("{who} was ended by its shim, which got SIGTERM{at}"),
            None,
        ),
        Sign::Silent(time) => (
            Class::Failed,
            format!("{who} has been silent for {} s{at}", seconds(*time)),
            None,
        ),
        Sign::NoHello(time) => (
            Class::Failed,
            format!(
                "{who} did not report within {} s of the launch",
                seconds(*time)
            ),
            None,
        ),
        Sign::NodeGone(status @ Status::Signal(signal)) => (
            Class::Failed,
            format!(
                "the launcher of {who} was killed by {}{at}",
                signal_name(*signal)
            ),
            Some(*status),
        ),
        Sign::NodeGone(Status::Code(code)) => (
            Class::Failed,
            format!("the launcher of {who} exited with code {code} before its ranks had ended{at}"),
            Some(Status::Code(*code)),
        ),
        Sign::LaunchFailed(why) => (
            Class::Failed,
            format!("{who} could not be launched: {why}"),
            None,
        ),
        Sign::StaysBehind(time) => (
            Class::Failed,
            format!(
                "{who} did not leave within {} s of the others{at}",
                seconds(*time)
            ),
            None,
        ),
    };
    Verdict {
        class,
        words,
        rank: evidence.rank,
        node: evidence.node.clone(),
        code: match status {
            Some(Status::Code(code)) => Some(code),
            _ => None,
        },
        signal: match status {
            Some(Status::Signal(signal)) => Some(signal),
            _ => None,
        },
        step,
        log: Vec::new(),
    }
}

fn at_step(step: Option<u64>) -> String {
    step.map(|s| format!(" at step {s}")).unwrap_or_default()
}

fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

/// Such as `SIGKILL`, or `signal 35` for one without a name.
pub fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |s| s.as_str().to_owned())
}

#[cfg(test)]
mod tests;
