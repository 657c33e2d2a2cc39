//! Rank arithmetic, the only one: tensor fastest, then data, then pipeline.

use serde::{Deserialize, Serialize};

/// Most ranks that the bundled trainer's collectives take.
pub const MAX_RANKS: usize = 256;

/// Degrees of the three parallel axes. A context axis is reserved between tensor and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mesh {
    /// Tensor parallel degree.
    pub tensor: usize,
    /// Data parallel degree.
    pub data: usize,
    /// Pipeline parallel degree.
    pub pipeline: usize,
}

/// Place of one rank on each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coord {
    pub tensor: usize,
    pub data: usize,
    pub pipeline: usize,
}

/// An axis along which ranks form groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    Tensor,
    Data,
    Pipeline,
    World,
}

impl Mesh {
    /// The serial mesh: one rank.
    pub const SERIAL: Mesh = Mesh {
        tensor: 1,
        data: 1,
        pipeline: 1,
    };

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.tensor * self.data * self.pipeline
    }

    /// Coordinates of `rank`; `rank` must be below [`Mesh::world`].
    pub fn coord(&self, rank: usize) -> Coord {
        debug_assert!(rank < self.world());
        Coord {
            tensor: rank % self.tensor,
            data: rank / self.tensor % self.data,
            pipeline: rank / (self.tensor * self.data),
        }
    }

    /// The rank at `at`, the inverse of [`Mesh::coord`].
    pub fn rank(&self, at: Coord) -> usize {
        at.tensor + self.tensor * (at.data + self.data * at.pipeline)
    }

    /// Ranks of the group that `rank` belongs to along `axis`, in group-rank order.
    pub fn group(&self, axis: Axis, rank: usize) -> Vec<usize> {
        let at = self.coord(rank);
        match axis {
            Axis::Tensor => (0..self.tensor)
                .map(|tensor| self.rank(Coord { tensor, ..at }))
                .collect(),
            Axis::Data => (0..self.data)
                .map(|data| self.rank(Coord { data, ..at }))
                .collect(),
            Axis::Pipeline => (0..self.pipeline)
                .map(|pipeline| self.rank(Coord { pipeline, ..at }))
                .collect(),
            Axis::World => (0..self.world()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_and_coord_are_inverse_and_groups_partition_the_world() {
        for (tensor, data, pipeline) in [(1, 1, 1), (2, 3, 4), (4, 1, 2), (1, 8, 1), (3, 2, 1)] {
            let mesh = Mesh {
                tensor,
                data,
                pipeline,
            };
            for axis in [Axis::Tensor, Axis::Data, Axis::Pipeline, Axis::World] {
                let mut seen = vec![0usize; mesh.world()];
                for (rank, count) in seen.iter_mut().enumerate() {
                    assert_eq!(mesh.rank(mesh.coord(rank)), rank);
                    let group = mesh.group(axis, rank);
                    assert!(group.contains(&rank));
                    *count += usize::from(group[0] == rank) * group.len();
                }
                assert_eq!(
                    seen.iter().sum::<usize>(),
                    mesh.world(),
                    "{mesh:?} {axis:?}"
                );
            }
        }
    }

    #[test]
    fn tensor_is_fastest_then_data_then_pipeline() {
        let mesh = Mesh {
            tensor: 2,
            data: 3,
            pipeline: 2,
        };
        assert_eq!(mesh.group(Axis::Tensor, 0), [0, 1]);
        assert_eq!(mesh.group(Axis::Data, 0), [0, 2, 4]);
        assert_eq!(mesh.group(Axis::Pipeline, 0), [0, 6]);
    }
}
