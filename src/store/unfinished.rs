//! Names of what is being made in a shared directory: they tell who makes it, so that what dead processes left can be removed.

use super::identity::{Life, Process};
use std::path::Path;

/// A hidden name for `what` (without `+`) until it is whole: `.<what>.<pid>+<start>+<namespace>+<boot>+<host>.tmp`.
pub fn name(what: &str) -> String {
    let Some(own) = Process::own() else {
        return format!(".{what}.{}.tmp", std::process::id());
    };
    format!(
        ".{what}.{}+{}+{}+{}+{}.tmp",
        own.pid,
        own.start,
        own.pid_namespace,
        own.boot,
        // What is no name of a file here is the name of no host: nobody will take it for a dead one's.
        own.host.replace('/', "?")
    )
}

/// Who makes what has this name.
fn maker(name: &str) -> Option<Process> {
    let name = name.strip_prefix('.')?.strip_suffix(".tmp")?;
    let (before, rest) = name.split_once('+')?;
    let mut parts = rest.splitn(4, '+');
    Some(Process {
        pid: before.rsplit_once('.')?.1.parse().ok()?,
        start: parts.next()?.parse().ok()?,
        pid_namespace: parts.next()?.parse().ok()?,
        boot: parts.next()?.to_owned(),
        host: parts.next()?.to_owned(),
    })
}

/// Removes from `directory` what processes left that are dead; what lives, or cannot be seen from here, stays.
pub fn sweep(directory: &Path) {
    let listing = std::fs::read_dir(directory).into_iter().flatten();
    for entry in listing.flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(maker);
        if maker.is_some_and(|process| process.life() == Life::Dead) {
            // Somebody else may remove it at the same time; what cannot be removed is in nobody's way.
            let _ = match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => std::fs::remove_dir_all(entry.path()),
                false => std::fs::remove_file(entry.path()),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_of_this_host_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let own = Process::own().unwrap();
        let mine = name("a-261130-abcd");
        assert_eq!(maker(&mine), Some(own.clone()));
        let with = |from: String, to: String| {
            let other = mine.replace(&from, &to);
            assert_ne!(other, mine);
            other
        };
        let dead = with(format!("+{}+", own.start), format!("+{}+", own.start + 1));
        let elsewhere = dead
            .replace(&own.boot, "0b0b")
            .replace(&format!("+{}.tmp", own.host), "+node7.example.tmp");
        let nested = dead.replace(&format!("+{}+", own.pid_namespace), "+7+");
        let stays = [
            &mine,
            &elsewhere,
            &nested,
            ".a-261130-abcd.tmp",
            "a-261130-abcd",
        ];
        for name in stays {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let file = dead.replace("abcd", "file");
        std::fs::write(dir.path().join(&file), "half").unwrap();
        std::fs::create_dir_all(dir.path().join(&dead).join("jobs/1")).unwrap();
        sweep(dir.path());
        for name in stays {
            assert!(dir.path().join(name).exists(), "{name}");
        }
        for name in [file, dead] {
            assert!(!dir.path().join(&name).exists(), "{name}");
        }
    }
}
