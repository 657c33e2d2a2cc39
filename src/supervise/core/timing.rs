//! How long things inside a job may take.

use std::time::Duration;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// From the launch to the hello of every rank.
    pub start: Duration,
    /// Without a beat of a shim.
    pub silence: Duration,
    /// From TERM to KILL when a peer has failed: there is nothing to save.
    pub abort: Duration,
    /// From TERM to KILL when cancelled.
    pub cancel: Duration,
    /// From a rank's exit with code 75 to the others'.
    pub leave: Duration,
    /// Beyond a grace, until launchers are killed.
    pub margin: Duration,
    /// Between two failures that are alike and the next attempt; grows to 30 times this.
    pub pause: Duration,
    /// Of a shim that has lost its supervisor, until it ends its rank.
    pub orphan: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            start: Duration::from_secs(60),
            silence: Duration::from_secs(30),
            abort: Duration::from_secs(1),
            cancel: Duration::from_secs(5),
            leave: Duration::from_secs(60),
            margin: Duration::from_secs(2),
            pause: Duration::from_secs(1),
            orphan: Duration::from_secs(10),
        }
    }
}

impl Timing {
    /// For nodes that are started and seen through a network and a shared file system.
    pub fn cluster() -> Timing {
        Timing {
            start: Duration::from_secs(300),
            silence: Duration::from_secs(60),
            abort: Duration::from_secs(5),
            cancel: Duration::from_secs(15),
            margin: Duration::from_secs(10),
            orphan: Duration::from_secs(60),
            ..Timing::default()
        }
    }

    /// The defaults, changed by text such as `silence=2,orphan=0.5` (seconds); unknown names and faults are skipped.
    pub fn parse(text: &str) -> Timing {
        let mut timing = Timing::default();
        for (name, value) in text.split(',').filter_map(|part| part.split_once('=')) {
            let Some(time) = value
                .parse()
                .ok()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            else {
                continue;
            };
            let field = match name.trim() {
                "start" => &mut timing.start,
                "silence" => &mut timing.silence,
                "abort" => &mut timing.abort,
                "cancel" => &mut timing.cancel,
                "leave" => &mut timing.leave,
                "margin" => &mut timing.margin,
                "pause" => &mut timing.pause,
                "orphan" => &mut timing.orphan,
                _ => continue,
            };
            *field = time;
        }
        timing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timing_is_read_from_text_and_faults_are_skipped() {
        let timing = Timing::parse("silence=2, orphan=0.5,nonsense=3,abort=x,start=-1");
        assert_eq!(timing.silence, Duration::from_secs(2));
        assert_eq!(timing.orphan, Duration::from_millis(500));
        assert_eq!(timing.abort, Timing::default().abort);
        assert_eq!(timing.start, Timing::default().start);
    }
}
