//! Rank → node and local rank, by blocks: the first ranks on the first node.

/// Where a rank runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub rank: usize,
    /// Index into the nodes of the allocation.
    pub node: usize,
    pub local_rank: usize,
}

/// Places of all ranks, in rank order.
pub fn places(nodes: usize, ranks_per_node: usize) -> impl Iterator<Item = Place> {
    (0..nodes).flat_map(move |node| {
        (0..ranks_per_node).map(move |local_rank| Place {
            rank: node * ranks_per_node + local_rank,
            node,
            local_rank,
        })
    })
}

/// Place of one rank; `ranks_per_node` is at least 1.
pub fn place(rank: usize, ranks_per_node: usize) -> Place {
    Place {
        rank,
        node: rank / ranks_per_node,
        local_rank: rank % ranks_per_node,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_its_own_place_and_nodes_fill_in_order() {
        let all: Vec<Place> = places(3, 4).collect();
        assert_eq!(all.len(), 12);
        for (rank, at) in all.iter().enumerate() {
            assert_eq!((at.rank, *at), (rank, place(rank, 4)));
        }
        assert_eq!((all[5].node, all[5].local_rank), (1, 1));
    }
}
