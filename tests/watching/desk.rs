//! A run root under a Slurm that is played by scripts.

use haul::store::journal::{Event, Journal};
use haul::store::{Root, RunDir};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) struct Desk {
    directory: tempfile::TempDir,
    template: RunDir,
}

impl Desk {
    /// With one run, whose job is 1, made by `haul submit`; questions are `floor` apart.
    pub(crate) fn new(floor: &str) -> Desk {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        std::fs::set_permissions(at, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir(at.join("bin")).unwrap();
        let script = |name: &str, last: &str| {
            let path = at.join("bin").join(name);
            let text = format!(
                "#!/bin/sh\necho \"{name} $*\" >> {}\n{last}\n",
                at.join("asked").display()
            );
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        };
        script("sbatch", "echo 1");
        for name in ["squeue", "sacct"] {
            let said = at.join(name);
            std::fs::write(&said, "").unwrap();
            script(name, &format!("cat {}", said.display()));
        }
        let asked = at.join("asked");
        std::fs::write(&asked, "").unwrap();
        std::fs::set_permissions(&asked, PermissionsExt::from_mode(0o666)).unwrap();
        let profile = format!(
            "schema: 1\nname: played\nscheduler: {{kind: slurm, poll_floor: {floor}}}\nbinding: none\nnode: {{device: cores, cores: 8, memory: 8GiB}}\ncharge: node-hours\n"
        );
        std::fs::write(at.join("machine.yaml"), profile).unwrap();
        let recipe = "name: t\nprogram: {command: [\"true\"]}\njob: {nodes: 2, ranks_per_node: 1, cores_per_rank: 1, walltime: 10m}\n";
        std::fs::write(at.join("recipe.yaml"), recipe).unwrap();
        let mut desk = Desk {
            template: RunDir::new(at),
            directory,
        };
        let recipe = desk.path().join("recipe.yaml");
        let submitted = desk.haul(&["submit", recipe.to_str().unwrap(), "--json"]);
        assert!(submitted.status.success(), "{submitted:?}");
        let id = json(&submitted)["run"].as_str().unwrap().to_owned();
        desk.template = desk.root().run(&id);
        std::fs::write(desk.path().join("asked"), "").unwrap();
        desk
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn root(&self) -> Root {
        Root::new(self.path().join("runs"))
    }

    /// The run that was submitted.
    pub(crate) fn run(&self) -> RunDir {
        self.template.clone()
    }

    /// Another run like it, with a job, or with a submission whose outcome nobody knows.
    pub(crate) fn more(&self, number: usize, job: Option<&str>) -> RunDir {
        let letters: String = format!("{number:04}")
            .chars()
            .map(|c| char::from(c as u8 - b'0' + b'a'))
            .map(|c| if c == 'l' { 'z' } else { c })
            .collect();
        let date = self.template.id().split('-').nth(1).unwrap().to_owned();
        let run = self.root().run(&format!("more-{date}-{letters}"));
        std::fs::create_dir_all(run.job(1)).unwrap();
        std::fs::copy(self.template.plan(1), run.plan(1)).unwrap();
        let mut journal = Journal::open(&run, "submitter").unwrap();
        let token = token(&run);
        journal.append(Event::Intent { slot: 1, token }).unwrap();
        if let Some(job) = job {
            let job = job.to_owned();
            journal.append(Event::Submitted { slot: 1, job }).unwrap();
        }
        run
    }

    /// What squeue or sacct prints from now on.
    pub(crate) fn says(&self, command: &str, lines: &str) {
        std::fs::write(self.path().join(command), lines).unwrap();
    }

    /// Calls of Slurm so far, as `squeue -h ...`.
    pub(crate) fn asked(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path().join("asked")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        let path = std::env::var("PATH").unwrap();
        command
            .args(arguments)
            .env("HAUL_ROOT", self.root().path())
            .env("HAUL_MACHINE", self.path().join("machine.yaml"))
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("PATH", format!("{}:{path}", self.bin().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn bin(&self) -> PathBuf {
        self.path().join("bin")
    }

    pub(crate) fn haul(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

/// The name of a run's first job.
pub(crate) fn token(run: &RunDir) -> String {
    format!("haul-{}-1", run.id())
}

#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[track_caller]
pub(crate) fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}
