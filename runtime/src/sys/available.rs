//! How much memory can still be taken before the kernel kills somebody for it.

use std::fs;
use std::path::Path;

/// Bytes: the least of what the machine has available and what each control group above this process leaves.
/// `None` where nothing tells.
pub fn memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| field(&text, "MemAvailable:"))
        .map(|kib| kib * 1024);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next(), parts.next(), parts.next());
        match (controllers, path) {
            (Some(""), Some(path)) => headroom("/sys/fs/cgroup", path, &V2),
            (Some("memory"), Some(path)) => headroom("/sys/fs/cgroup/memory", path, &V1),
            _ => None,
        }
    });
    machine.into_iter().chain(limits).min()
}

/// Names of one version of the control group files.
struct Names {
    limit: &'static str,
    used: &'static str,
    /// Field of `memory.stat` for cached files, which the kernel gives back when asked.
    cache: &'static str,
    shared: &'static str,
}

const V2: Names = Names {
    limit: "memory.max",
    used: "memory.current",
    cache: "file ",
    shared: "shmem ",
};
const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_cache ",
    shared: "total_shmem ",
};

/// The least room in the group at `path` and in those above it; none where no limit is set.
fn headroom(mount: &str, path: &str, names: &Names) -> Option<u64> {
    let mount = Path::new(mount);
    let group = mount.join(path.trim_start_matches('/'));
    let above = group.ancestors().take_while(|dir| dir.starts_with(mount));
    above
        .filter_map(|dir| {
            let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
            let limit: u64 = read(names.limit)?.trim().parse().ok()?;
            let used: u64 = read(names.used)?.trim().parse().ok()?;
            let stat = read("memory.stat").unwrap_or_default();
            let cache = field(&stat, names.cache).unwrap_or(0);
            let shared = field(&stat, names.shared).unwrap_or(0);
            Some(limit.saturating_sub(used.saturating_sub(cache.saturating_sub(shared))))
        })
        .min()
}

/// The first number behind `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_above_a_group_counts_and_cache_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("job/step");
        fs::create_dir_all(&inner).unwrap();
        let put = |path: &str, text: &str| fs::write(dir.path().join(path), text).unwrap();
        put("job/memory.max", "1000\n");
        put("job/memory.current", "700\n");
        put("job/memory.stat", "anon 400\nfile 300\nshmem 100\n");
        put("job/step/memory.max", "max\n");
        put("job/step/memory.current", "5\n");
        let mount = dir.path().to_str().unwrap();
        assert_eq!(headroom(mount, "/job/step", &V2), Some(1000 - 700 + 200));
        assert_eq!(headroom(mount, "/", &V2), None);
        assert!(memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
