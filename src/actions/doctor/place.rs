//! The run root as a place that all nodes of a cluster write to: on which file system it is, and what that one can.

use super::{Check, Grade, ok};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// File systems that all nodes of a site usually mount.
const SHARED: [&str; 17] = [
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "beegfs_nodev",
    "ceph",
    "panfs",
    "wekafs",
    "dvs",
    "afs",
    "gfs2",
    "ocfs2",
    "orangefs",
    "pvfs2",
    "cifs",
    "smb3",
];
/// Those behind FUSE.
const SHARED_FUSE: [&str; 6] = ["daos", "dfuse", "ceph", "glusterfs", "juicefs", "mfs"];
/// Memory of this machine.
const MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];

/// Whether compute nodes see it.
pub(super) fn shared(root: &Path) -> Check {
    const NAME: &str = "file system";
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let place = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    match mount(&table, &place) {
        Some((point, kind)) => judge(&kind, &point),
        None => ok(NAME, "not known: /proc/self/mountinfo does not tell").unless(
            false,
            Grade::Warning,
            "make sure that compute nodes see the run root",
        ),
    }
}

fn judge(kind: &str, point: &Path) -> Check {
    let check = ok(
        "file system",
        format!("{kind}, mounted at {}", point.display()),
    );
    let behind_fuse = kind
        .strip_prefix("fuse.")
        .is_some_and(|kind| SHARED_FUSE.iter().any(|known| kind.contains(known)));
    if SHARED.contains(&kind) || behind_fuse {
        return check;
    }
    let elsewhere = "choose a shared place with --root, HAUL_ROOT or `root:` of the user config";
    let advice = match MEMORY.contains(&kind) {
        true => {
            format!("this is memory of this machine: compute nodes do not see it; {elsewhere}")
        }
        false => format!(
            "probably a disk of this machine, which compute nodes may not see: {elsewhere}, unless it is exported to them"
        ),
    };
    check.unless(false, Grade::Warning, advice)
}

/// Mount point and type of what `path` is on: the longest mount point, and of the same one the last mounted.
fn mount(table: &str, path: &Path) -> Option<(PathBuf, String)> {
    let mounts = table.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = unescaped(before.split(' ').nth(4)?);
        Some((point, after.split(' ').next()?.to_owned()))
    });
    mounts
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.components().count())
}

/// `\040` for a space, and so on.
fn unescaped(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let octal = bytes
            .get(at + 1..at + 4)
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match (bytes[at], octal) {
            (b'\\', Some(byte)) => {
                plain.push(byte);
                at += 4;
            }
            (byte, _) => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(plain))
}

/// What claims rest on: a file that only one can make, and hard links.
pub(super) fn exclusive(root: &Path) -> Check {
    const NAME: &str = "exclusive files";
    let probe = |what: &str| root.join(format!(".haul-doctor-{what}-{}", std::process::id()));
    let (first, second) = (probe("first"), probe("second"));
    let create = || OpenOptions::new().write(true).create_new(true).open(&first);
    let made = create().map(drop);
    let again = create().map(drop);
    let linked = std::fs::hard_link(&first, &second);
    let linked_again = std::fs::hard_link(&first, &second);
    for path in [&first, &second] {
        let _ = std::fs::remove_file(path);
    }
    let exists = |result: std::io::Result<()>| {
        result.is_err_and(|error| error.kind() == ErrorKind::AlreadyExists)
    };
    let elsewhere =
        "two jobs of one run could both train: choose a run root on another file system";
    if let Err(error) = made {
        let advice = "choose another place with --root or HAUL_ROOT";
        return ok(NAME, format!("not tried: {error}")).unless(false, Grade::Error, advice);
    }
    let twice = match linked {
        _ if !exists(again) => Some("a file could be made twice"),
        Ok(()) if !exists(linked_again) => Some("a link could be made twice"),
        Ok(()) => None,
        Err(error) => {
            let seen = format!("exclusive creation works; hard links do not: {error}");
            return ok(NAME, seen).unless(
                false,
                Grade::Warning,
                "claims fall back to exclusive creation, which is enough unless a job dies while it writes one",
            );
        }
    };
    ok(
        NAME,
        twice.unwrap_or("exclusive creation and hard links work"),
    )
    .unless(twice.is_none(), Grade::Error, elsewhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_and_newest_mount_counts() {
        let table = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     30 22 0:40 / /lustre rw,nosuid shared:1 master:2 - lustre 10.0.0.1@o2ib:/x rw\n\
                     31 30 0:41 / /lustre/my\\040own rw - nfs4 server:/x rw\n\
                     32 22 0:42 / /tmp rw - ext4 /dev/b rw\n\
                     33 22 0:43 / /tmp rw - tmpfs tmpfs rw\nbroken line\n";
        let kind = |path: &str| mount(table, Path::new(path)).unwrap().1;
        assert_eq!(kind("/lustre/orion/proj"), "lustre");
        assert_eq!(kind("/lustre/my own/runs"), "nfs4");
        assert_eq!(kind("/lustrefake"), "ext4");
        assert_eq!(kind("/tmp/x"), "tmpfs");
        assert!(mount("", Path::new("/")).is_none());
    }

    #[test]
    fn only_shared_kinds_are_fine() {
        let grade = |kind| judge(kind, Path::new("/x")).grade;
        for kind in ["lustre", "nfs4", "gpfs", "fuse.daos", "fuse.glusterfs"] {
            assert_eq!(grade(kind), Grade::Ok, "{kind}");
        }
        for kind in ["ext4", "tmpfs", "overlay", "fuse.sshfs", "zfs"] {
            assert_eq!(grade(kind), Grade::Warning, "{kind}");
        }
        assert!(
            judge("tmpfs", Path::new("/x"))
                .advice
                .unwrap()
                .contains("memory of this machine")
        );
    }

    #[test]
    fn a_real_directory_has_exclusive_files_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(exclusive(dir.path()).grade, Grade::Ok);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(exclusive(&dir.path().join("none")).grade, Grade::Error);
    }
}
