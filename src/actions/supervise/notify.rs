//! Tells the end of a run by the command of the recipe or user config. It never changes the end.

use super::{Entry_, Shell, say};
use crate::plan::{On, Plan};
use crate::supervise::verdict::Outcome;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Then it is ended.
const LIMIT: Duration = Duration::from_secs(30);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Characters of the words; the environment of a process has its limits.
const WORDS: usize = 4096;

impl Shell {
    /// Called once an end, after it has been written down.
    pub(super) async fn notify(&mut self, outcome: Outcome, words: &str) -> anyhow::Result<()> {
        let Some((event, command)) = wanted(&self.site.plan, outcome) else {
            return Ok(());
        };
        let told = tell(command, &self.site.run.id(), event, words, LIMIT).await;
        let error = told.err();
        if let Some(error) = &error {
            say(&format!(
                "nobody was notified that the run {event}: {error}"
            ));
        }
        self.journal.append(Entry_::Notified {
            on: event.to_owned(),
            error,
        })?;
        Ok(())
    }
}

/// The event in a word and the command, where somebody wants to know.
fn wanted(plan: &Plan, outcome: Outcome) -> Option<(&'static str, &[String])> {
    let notify = plan.notify.as_ref()?;
    let (on, word) = match outcome {
        Outcome::Finished => (On::Finished, "finished"),
        Outcome::Failed => (On::Failed, "failed"),
        Outcome::Cancelled | Outcome::Stopped | Outcome::Unknown => return None,
    };
    notify.on.contains(&on).then_some((word, &notify.command))
}

/// Runs the command without a shell; the error says what came of it.
async fn tell(
    command: &[String],
    run: &str,
    event: &str,
    words: &str,
    limit: Duration,
) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("the command is empty")?;
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut child = Command::new(program)
        .args(arguments)
        .env("HAUL_RUN", run)
        .env("HAUL_EVENT", event)
        .env(
            "HAUL_WORDS",
            words.chars().map(plain).take(WORDS).collect::<String>(),
        )
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{program} ended with {status}")),
            Err(error) => return Err(format!("{program} was not waited for: {error}")),
            Ok(None) if begin.elapsed() < limit => tokio::time::sleep(LOOK).await,
            Ok(None) => break,
        }
    }
    // All that it started, too.
    if let Ok(group) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let _ = child.wait();
    Err(format!(
        "{program} took more than {} s and was ended",
        limit.as_secs_f64()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &[&str], limit: Duration) -> Result<(), String> {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let words = "rank 1\u{1b}[31m: $(x)\0 \"y\"\n";
        // Without the driver of signals, whose handler would interrupt the system calls of other tests.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(tell(&command, "a-261130-aaaa", "failed", words, limit))
    }

    fn shell(script: &str, limit: Duration) -> Result<(), String> {
        run(&["sh", "-c", script], limit)
    }

    #[test]
    fn the_command_gets_the_words_as_variables_and_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let show = format!(
            "printf '%s|%s|%s' \"$HAUL_RUN\" \"$HAUL_EVENT\" \"$HAUL_WORDS\" > {}",
            out.display()
        );
        assert_eq!(shell(&show, LIMIT), Ok(()));
        let seen = std::fs::read_to_string(&out).unwrap();
        assert_eq!(seen, "a-261130-aaaa|failed|rank 1 [31m: $(x)  \"y\" ");
        let failed = shell("exit 7", LIMIT).unwrap_err();
        assert!(failed.contains("exit status: 7"), "{failed}");
        let begin = std::time::Instant::now();
        let pid = dir.path().join("pid");
        let hang = format!("sleep 60 & echo $! > {}; wait", pid.display());
        let slow = shell(&hang, Duration::from_millis(500)).unwrap_err();
        assert!(slow.contains("took more than 0.5 s"), "{slow}");
        assert!(begin.elapsed() < Duration::from_secs(20));
        // What it started is ended with it.
        let pid: i32 = std::fs::read_to_string(&pid)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        while !gone() {
            assert!(begin.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(10));
        }
        let none = run(&["./no-such"], LIMIT).unwrap_err();
        assert!(none.contains("cannot run ./no-such"), "{none}");
    }
}
