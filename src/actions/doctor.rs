//! Use case: looks at this machine, this run root and, under Slurm, this site, and says what would not work, and what to do about it.

mod account;
mod partition;
mod place;
mod site;
mod slurm;

use super::check::Here;
use super::standing::State;
use super::view;
use crate::machine::profile::SchedulerKind;
use crate::store::publish::{publish, replace};
use crate::store::{Root, select};
use crate::ui::style::Style;
use crate::ui::table::Table;
use crate::ui::units;
use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, SystemTime};

pub const SCHEMA: &str = "haul.doctor/1";
/// Runs whose state is looked at.
const RUNS: usize = 100;
/// Inodes that should be left.
const FILES: u64 = 10_000;

/// From good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    Ok,
    Warning,
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub grade: Grade,
    pub seen: String,
    /// What to do, where something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

fn ok(name: &'static str, seen: impl Into<String>) -> Check {
    Check {
        name,
        grade: Grade::Ok,
        seen: seen.into(),
        advice: None,
    }
}

impl Check {
    /// The first fault of several counts, unless a later one is worse.
    fn unless(mut self, fine: bool, grade: Grade, advice: impl Into<String>) -> Check {
        if !fine && grade > self.grade {
            self.grade = grade;
            self.advice = Some(advice.into());
        }
        self
    }
}

/// Everything: the site too, where the profile says that Slurm starts jobs.
pub fn look(here: &Here) -> Vec<Check> {
    let root = Root::new(&here.root);
    let mut checks = machine(&root);
    if here.machine.scheduler.kind == SchedulerKind::Slurm {
        checks.extend([place::shared(root.path()), place::exclusive(root.path())]);
        checks.extend(slurm::look(&slurm::Wanted {
            machine: &here.machine,
            account: here.account.as_deref(),
            user: user(),
            cores: super::check::allowed_cores(),
        }));
    }
    checks.push(runs(&root));
    checks
}

/// Who asks.
fn user() -> String {
    let uid = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

/// This machine and the run root as a directory of it.
fn machine(root: &Root) -> Vec<Check> {
    let mut checks = vec![
        cores(),
        instructions(),
        equality(),
        memory(),
        huge_pages(),
        bash(),
    ];
    checks.extend([
        writable("run root", root.path()),
        writable("/tmp", Path::new("/tmp")),
    ]);
    checks.extend([space(root.path()), clock(root.path()), shared_memory()]);
    checks.extend(limits());
    checks
}

fn cores() -> Check {
    let allowed = super::check::allowed_cores();
    let online = read("/sys/devices/system/cpu/online").map_or(0, |list| count(&list));
    let quota = read("/sys/fs/cgroup/cpu.max").and_then(|text| {
        let (quota, period) = text.split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    });
    let mut seen = format!("{allowed} of {online} allowed by affinity");
    if let Some(quota) = quota {
        seen.push_str(&format!(", cgroup quota {quota:.1}"));
    }
    ok("cores", seen).unless(
        quota.is_none_or(|quota| quota + 0.01 >= allowed as f64),
        Grade::Warning,
        "threads will be throttled: use no more ranks x cores_per_rank than the quota",
    )
}

/// Number of cores in a list such as `0-3,8`.
fn count(list: &str) -> usize {
    list.trim()
        .split(',')
        .filter_map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            Some(to.parse::<usize>().ok()? + 1 - from.parse::<usize>().ok()?)
        })
        .sum()
}

/// The kernels that a worker takes on this CPU.
fn instruction_path() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        let fast = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
        match fast {
            true if std::is_x86_feature_detected!("avx512f") => "avx512",
            true => "avx2",
            false => "portable",
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    "portable"
}

fn instructions() -> Check {
    let path = instruction_path();
    ok(
        "instructions",
        format!("{path} kernels on {}", std::env::consts::ARCH),
    )
    .unless(
        path != "portable",
        Grade::Warning,
        "training runs on the portable kernels, several times slower",
    )
}

/// What results may be compared with; the full table stands in ARCHITECTURE.md.
fn equality() -> Check {
    let path = instruction_path();
    ok(
        "results",
        format!(
            "equal to the bit on every machine with the same instruction path (here: {path}), for any number of threads and virtual \
             nodes, killed and resumed or not; within rounding for another data-parallel degree, micro-batch or path"
        ),
    )
}

fn memory() -> Check {
    let kilobytes = |name: &str| {
        let text = read("/proc/meminfo")?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let total = kilobytes("MemTotal:").unwrap_or(0) << 10;
    let free = kilobytes("MemAvailable:").unwrap_or(0) << 10;
    let limit = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse::<u64>().ok());
    let mut seen = format!(
        "{} of {} available",
        units::bytes(free),
        units::bytes(total)
    );
    if let Some(limit) = limit {
        seen.push_str(&format!(", cgroup limit {}", units::bytes(limit)));
    }
    ok("memory", seen).unless(
        free > 2 << 30,
        Grade::Warning,
        "`haul plan RECIPE` tells what a run needs",
    )
}

fn huge_pages() -> Check {
    let chosen = |path: &str| {
        let text = read(path)?;
        let start = text.find('[')? + 1;
        Some(text[start..].split(']').next()?.to_owned())
    };
    let private = chosen("/sys/kernel/mm/transparent_hugepage/enabled");
    let fine = matches!(private.as_deref(), Some("always" | "madvise"));
    ok("huge pages", private.unwrap_or("not told".into())).unless(
        fine,
        Grade::Warning,
        "steps are some percent slower; an administrator may write `madvise` to /sys/kernel/mm/transparent_hugepage/enabled",
    )
}

fn bash() -> Check {
    let output = std::process::Command::new("bash")
        .args(["-c", "echo $BASH_VERSION"])
        .output();
    match output {
        Ok(output) if output.status.success() => {
            ok("bash", String::from_utf8_lossy(&output.stdout).trim())
        }
        Ok(output) => ok("bash", format!("{}", output.status)).unless(false, Grade::Error, BASH),
        Err(error) => ok("bash", error.to_string()).unless(false, Grade::Error, BASH),
    }
}

const BASH: &str = "job scripts need it: install bash and put it on PATH";

/// Tries what runs rely on: create, fsync, link, rename.
fn writable(name: &'static str, directory: &Path) -> Check {
    let probe = directory.join(format!(".haul-doctor-{}", std::process::id()));
    let advice = "choose another place with --root or HAUL_ROOT";
    let tried = std::fs::create_dir_all(directory)
        .map_err(|e| format!("cannot create {}: {e}", directory.display()))
        .and_then(|()| publish(&probe, b"1").map_err(|e| e.to_string()))
        .and_then(|_| replace(&probe, b"2").map_err(|e| e.to_string()));
    let _ = std::fs::remove_file(&probe);
    match tried {
        Ok(()) => ok(
            name,
            format!(
                "{}: files can be made, linked, renamed, synced",
                directory.display()
            ),
        ),
        Err(reason) => ok(name, reason).unless(false, Grade::Error, advice),
    }
}

fn space(directory: &Path) -> Check {
    match nix::sys::statvfs::statvfs(directory) {
        Ok(stat) => {
            let free = stat.blocks_available() * stat.fragment_size();
            // Some file systems make inodes as they need them and count none.
            let files = (stat.files() > 0).then(|| stat.files_available());
            let mut seen = format!("{} free in the run root", units::bytes(free));
            if let Some(files) = files {
                seen.push_str(&format!(", room for {} more files", units::grouped(files)));
            }
            ok("disk", seen)
                .unless(
                    free > 2 << 30,
                    Grade::Warning,
                    "checkpoints of large models will not fit: --root names another place",
                )
                .unless(
                    files.is_none_or(|files| files > FILES),
                    Grade::Warning,
                    "a run makes some hundred files: remove old ones (`haul prune`), or --root names another place",
                )
        }
        Err(error) => ok("disk", format!("free space is not known: {error}")),
    }
}

/// The clock of the file system against this machine's.
fn clock(directory: &Path) -> Check {
    let probe = directory.join(format!(".haul-doctor-time-{}", std::process::id()));
    let before = SystemTime::now();
    let written = publish(&probe, b"")
        .ok()
        .and_then(|_| std::fs::metadata(&probe).ok()?.modified().ok());
    let _ = std::fs::remove_file(&probe);
    let Some(written) = written else {
        return ok("clock", "not compared");
    };
    let skew = written
        .duration_since(before)
        .unwrap_or_else(|behind| behind.duration());
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    ok(
        "clock",
        format!(
            "{now}, files differ by {}",
            units::duration(skew.as_secs_f64())
        ),
    )
    .unless(
        skew < Duration::from_secs(5),
        Grade::Warning,
        "ages shown by `haul status` are wrong by this; nothing else depends on it",
    )
}

fn shared_memory() -> Check {
    let made = nix::sys::memfd::memfd_create(c"haul-doctor", nix::sys::memfd::MFdFlags::empty())
        .and_then(|fd| nix::unistd::ftruncate(&fd, 1 << 20));
    match made {
        Ok(()) => ok("shared memory", "memory files can be made"),
        Err(error) => ok("shared memory", format!("memfd_create: {error}")).unless(
            false,
            Grade::Error,
            "ranks of a machine share their gradients through it: the kernel or a sandbox forbids it",
        ),
    }
}

fn limits() -> Vec<Check> {
    let limit = |resource| getrlimit(resource).map_or(u64::MAX, |(soft, _)| soft);
    let words = |value: u64| match value {
        u64::MAX => "unlimited".to_owned(),
        value => value.to_string(),
    };
    let files = limit(Resource::RLIMIT_NOFILE);
    let processes = limit(Resource::RLIMIT_NPROC);
    let address = limit(Resource::RLIMIT_AS);
    vec![
        ok("open files", words(files)).unless(
            files >= 1024,
            Grade::Warning,
            "raise it: ulimit -n 4096",
        ),
        ok("processes", words(processes)).unless(
            processes >= 256,
            Grade::Warning,
            "raise it: ulimit -u 1024",
        ),
        ok("address space", words(address)).unless(
            address == u64::MAX,
            Grade::Warning,
            "large models will not fit: ulimit -v unlimited",
        ),
    ]
}

/// Runs that wait for somebody: their submitter or supervisor was killed, or their state cannot be told.
fn runs(root: &Root) -> Check {
    let Ok(runs) = select::newest_first(root) else {
        return ok("runs", "the run root cannot be listed");
    };
    let left: Vec<String> = runs
        .iter()
        .take(RUNS)
        .filter_map(|run| view::view(run).ok())
        .filter(|view| {
            matches!(view.state, State::Planned | State::Unknown)
                || view.words.contains("was killed")
        })
        .map(|view| format!("{} ({})", view.id, view.words))
        .collect();
    let seen = match left.len() {
        0 => format!("{} in the run root, none left behind", runs.len()),
        _ => left.join("; "),
    };
    ok("runs", seen).unless(
        left.is_empty(),
        Grade::Warning,
        "`haul resume RUN` goes on with a run, `haul cancel RUN` puts an end to it",
    )
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// For people.
pub fn text(checks: &[Check], width: Option<usize>, style: Style) -> String {
    let mut table = Table::new(&["", "", ""]);
    for check in checks {
        let grade = match check.grade {
            Grade::Ok => style.green("ok"),
            Grade::Warning => style.yellow("warning"),
            Grade::Error => style.red("error"),
        };
        table.row([grade, check.name.to_owned(), check.seen.clone()]);
    }
    let mut text = table.render(width, style);
    for check in checks {
        if let Some(advice) = &check.advice {
            text.push_str(&format!("\n{}: {advice}", style.bold(check.name)));
        }
    }
    if checks.iter().any(|check| check.advice.is_some()) {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists_are_counted() {
        assert_eq!(count("0-3,8\n"), 5);
        assert_eq!(count("0"), 1);
        assert_eq!(count(""), 0);
    }

    #[test]
    fn a_root_that_cannot_be_written_is_an_error_with_advice() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let bad = machine(&Root::new(file.join("root")));
        let root = bad.iter().find(|check| check.name == "run root").unwrap();
        assert_eq!(root.grade, Grade::Error);
        assert!(root.advice.as_ref().unwrap().contains("--root"));
        let good = machine(&Root::new(dir.path().join("root")));
        let root = good.iter().find(|check| check.name == "run root").unwrap();
        assert_eq!(root.grade, Grade::Ok, "{}", root.seen);
        let left = std::fs::read_dir(dir.path().join("root")).unwrap().count();
        assert_eq!(left, 0);
    }
}
