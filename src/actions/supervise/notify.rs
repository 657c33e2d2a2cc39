//! Tells the end of a run by the command of the recipe or user config. It never changes the end.

use super::{Entry_, Shell, say};
use crate::plan::{On, Plan};
use crate::supervise::verdict::Outcome;
use std::process::Stdio;
use std::time::Duration;

/// Then it is ended.
const LIMIT: Duration = Duration::from_secs(30);
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
    let mut child = tokio::process::Command::new(program)
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
    let group = child.id().and_then(|pid| i32::try_from(pid).ok());
    match tokio::time::timeout(limit, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{program} ended with {status}")),
        Ok(Err(error)) => Err(format!("{program} was not waited for: {error}")),
        Err(_) => {
            // All that it started, too.
            if let Some(group) = group {
                let group = nix::unistd::Pid::from_raw(group);
                let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
            }
            let _ = child.wait().await;
            Err(format!(
                "{program} took more than {} s and was ended",
                limit.as_secs_f64()
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str, limit: Duration) -> Result<(), String> {
        let command = ["sh", "-c", script].map(str::to_owned);
        tell(
            &command,
            "a-261130-aaaa",
            "failed",
            "rank 1\u{1b}[31m: $(x)\0 \"y\"\n",
            limit,
        )
        .await
    }

    #[tokio::test]
    async fn the_command_gets_the_words_as_variables_and_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let show = format!(
            "printf '%s|%s|%s' \"$HAUL_RUN\" \"$HAUL_EVENT\" \"$HAUL_WORDS\" > {}",
            out.display()
        );
        assert_eq!(shell(&show, LIMIT).await, Ok(()));
        let seen = std::fs::read_to_string(&out).unwrap();
        assert_eq!(seen, "a-261130-aaaa|failed|rank 1 [31m: $(x)  \"y\" ");
        let failed = shell("exit 7", LIMIT).await.unwrap_err();
        assert!(failed.contains("exit status: 7"), "{failed}");
        let begin = std::time::Instant::now();
        let pid = dir.path().join("pid");
        let hang = format!("sleep 60 & echo $! > {}; wait", pid.display());
        let slow = shell(&hang, Duration::from_millis(500)).await.unwrap_err();
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
        let none = tell(&["./no-such".to_owned()], "r", "failed", "", LIMIT)
            .await
            .unwrap_err();
        assert!(none.contains("cannot run ./no-such"), "{none}");
    }
}
