//! Cores of a rank: choose, set, read back from the kernel.

use super::RankError;
use crate::control::Bind;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Cores the process may run on, ascending.
pub fn allowed(pid: i32) -> Result<Vec<usize>, RankError> {
    let set =
        sched_getaffinity(Pid::from_raw(pid)).map_err(RankError::system("read a core mask"))?;
    Ok((0..CpuSet::count())
        .filter(|core| set.is_set(*core).unwrap_or(false))
        .collect())
}

/// Part `index` of `of` nearly equal, contiguous parts of `cores`; with fewer cores than parts, parts share cores.
pub fn share(cores: &[usize], index: usize, of: usize) -> Vec<usize> {
    let n = cores.len();
    if n == 0 || of == 0 {
        return Vec::new();
    }
    if n < of {
        return vec![cores[index % n]];
    }
    cores[index * n / of..(index + 1) * n / of].to_vec()
}

/// Binds the calling thread, and so the children it spawns; returns the cores asked for, absent when none are.
pub fn apply(bind: &Bind) -> Result<Option<Vec<usize>>, RankError> {
    let cores = match bind {
        Bind::Leave => return Ok(None),
        Bind::Cores(cores) => cores.clone(),
        Bind::Share { index, of } => share(&allowed(0)?, *index, *of),
    };
    let mut set = CpuSet::new();
    for core in &cores {
        set.set(*core)
            .map_err(RankError::system("name a core that the kernel can have"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(RankError::system("bind to the cores"))?;
    Ok(Some(cores))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_cores_once_and_are_shared_when_too_few() {
        for (n, of) in [(8, 2), (7, 3), (16, 16), (5, 1)] {
            let cores: Vec<usize> = (10..10 + n).collect();
            let all: Vec<usize> = (0..of).flat_map(|i| share(&cores, i, of)).collect();
            assert_eq!(all, cores);
        }
        assert_eq!(share(&[3, 5], 0, 4), [3]);
        assert_eq!(share(&[3, 5], 3, 4), [5]);
        assert!(share(&[], 0, 4).is_empty());
    }

    #[test]
    fn a_child_inherits_the_mask_that_was_asked_for() {
        std::thread::spawn(|| {
            let cores = allowed(0).unwrap();
            let asked = apply(&Bind::Share { index: 1, of: 2 }).unwrap().unwrap();
            assert_eq!(asked, share(&cores, 1, 2));
            let mut child = std::process::Command::new("sleep")
                .arg("5")
                .spawn()
                .unwrap();
            assert_eq!(allowed(child.id() as i32).unwrap(), asked);
            child.kill().unwrap();
            child.wait().unwrap();
        })
        .join()
        .unwrap();
    }
}
