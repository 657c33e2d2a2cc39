//! Runs a command of Slurm: bounded in time, standard error apart, without what the caller's own job left in the environment.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// What a command said.
#[derive(Debug)]
pub struct Said {
    /// Absent when it was killed because it took too long.
    pub status: Option<ExitStatus>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Variables by which Slurm's commands change what they do; those that say where the cluster is stay.
fn is_foreign(name: &str) -> bool {
    const KEPT: [&str; 4] = [
        "SLURM_CONF",
        "SLURM_CONF_SERVER",
        "SLURM_JWT",
        "SLURM_CLUSTERS",
    ];
    const OF: [&str; 6] = [
        "SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SRUN_", "SCANCEL_",
    ];
    OF.iter().any(|prefix| name.starts_with(prefix)) && !KEPT.contains(&name)
}

/// Runs `program` for at most `limit`. An error where it cannot be started.
pub fn run(program: &str, arguments: &[&str], limit: Duration) -> std::io::Result<Said> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("SLURM_TIME_FORMAT", "%s")
        .env("LC_ALL", "C")
        // Ctrl-C is for us: a question that was asked is answered.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_foreign) {
            command.env_remove(&name);
        }
    }
    let mut child = command.spawn()?;
    let (tell, told) = channel();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let read = |stream: Option<Box<dyn Read + Send>>, second: bool| {
        let tell = tell.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(stream) = stream {
                // An answer of more than this is no answer.
                let _ = stream.take(64 << 20).read_to_end(&mut bytes);
            }
            let _ = tell.send((second, bytes));
        });
    };
    read(out.map(|s| Box::new(s) as Box<dyn Read + Send>), false);
    read(err.map(|s| Box::new(s) as Box<dyn Read + Send>), true);
    let until = Instant::now() + limit;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if Instant::now() >= until => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let mut said = Said {
        status,
        out: String::new(),
        err: String::new(),
    };
    // A grandchild may hold the pipes for longer than the command lives.
    let grace = Instant::now() + Duration::from_secs(1);
    for _ in 0..2 {
        let left = grace.saturating_duration_since(Instant::now());
        let Ok((second, bytes)) = told.recv_timeout(left) else {
            break;
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match second {
            false => said.out = text,
            true => said.err = text,
        }
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_kept_apart_and_a_slow_command_is_ended() {
        let said = run(
            "sh",
            &["-c", "echo a; echo b >&2; exit 3"],
            Duration::from_secs(20),
        )
        .unwrap();
        assert_eq!((said.out.as_str(), said.err.as_str()), ("a\n", "b\n"));
        assert_eq!(said.status.unwrap().code(), Some(3));
        let begin = Instant::now();
        let said = run(
            "sh",
            &["-c", "echo early; exec sleep 60"],
            Duration::from_millis(300),
        )
        .unwrap();
        assert_eq!((said.status, said.out.as_str()), (None, "early\n"));
        assert!(begin.elapsed() < Duration::from_secs(20));
        assert!(run("no-such-command-of-slurm", &[], Duration::from_secs(1)).is_err());
    }

    #[test]
    fn the_callers_own_job_is_not_inherited() {
        assert!(is_foreign("SBATCH_PARTITION") && is_foreign("SLURM_JOB_ID"));
        assert!(!is_foreign("SLURM_CONF") && !is_foreign("PATH"));
    }
}
