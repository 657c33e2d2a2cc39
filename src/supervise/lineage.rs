//! Which checkpoints a new attempt may start from: those of the head and its ancestors. Pure.

use haul_runtime::contract::checkpoint::Point;

/// An attempt as the journal tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Reign of the supervisor that launched it.
    pub epoch: u64,
    pub attempt: u32,
    pub parent: Option<Point>,
}

/// Checkpoints of one attempt that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub attempt: u32,
    /// Later ones belong to a branch that was left; absent for the head.
    pub last: Option<u64>,
}

impl Segment {
    /// Whether the checkpoint of `step` counts.
    pub fn holds(&self, step: u64) -> bool {
        self.last.is_none_or(|last| step <= last)
    }
}

/// The head (the newest attempt of the highest epoch) and its ancestors, newest first.
pub fn lineage(launches: &[Launch]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut next = launches
        .iter()
        .max_by_key(|launch| (launch.epoch, launch.attempt))
        .map(|head| (head.attempt, None));
    while let Some((attempt, last)) = next {
        segments.push(Segment { attempt, last });
        next = launches
            .iter()
            .find(|launch| launch.attempt == attempt)
            .and_then(|launch| launch.parent)
            // Numbers fall towards the root, so that a damaged journal makes no circle.
            .filter(|parent| parent.attempt < attempt)
            .map(|parent| (parent.attempt, Some(parent.step)));
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(epoch: u64, attempt: u32, parent: Option<(u32, u64)>) -> Launch {
        Launch {
            epoch,
            attempt,
            parent: parent.map(|(attempt, step)| Point { attempt, step }),
        }
    }

    #[test]
    fn branches_that_were_left_and_fenced_attempts_do_not_count() {
        let launches = [
            launch(1, 1, None),
            launch(1, 2, Some((1, 40))),
            launch(3, 3, Some((1, 20))),
            // Launched late by a supervisor of an older reign.
            launch(1, 4, Some((2, 90))),
            launch(3, 5, Some((3, 30))),
        ];
        let segments = lineage(&launches);
        let told: Vec<_> = segments.iter().map(|s| (s.attempt, s.last)).collect();
        assert_eq!(told, [(5, None), (3, Some(30)), (1, Some(20))]);
        assert!(segments[2].holds(20) && !segments[2].holds(21));
        assert!(lineage(&[]).is_empty());
        assert_eq!(lineage(&[launch(1, 2, Some((2, 1)))]).len(), 1);
    }
}
