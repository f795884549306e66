//! The order of flows: what reads what, and whether that goes round in a circle.

use petgraph::algo::{kosaraju_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};

/// Things that depend on each other, by index.
#[derive(Debug, Default)]
pub struct Dependencies {
    graph: DiGraph<(), ()>,
}

impl Dependencies {
    /// `count` things without dependencies yet.
    pub fn new(count: usize) -> Self {
        let mut graph = DiGraph::new();
        for _ in 0..count {
            graph.add_node(());
        }
        Self { graph }
    }

    /// `reader` reads what `source` makes.
    pub fn add(&mut self, reader: usize, source: usize) {
        self.graph
            .update_edge(NodeIndex::new(source), NodeIndex::new(reader), ());
    }

    /// All things, each behind those that it reads.
    ///
    /// # Errors
    /// The members of each circle.
    pub fn order(&self) -> Result<Vec<usize>, Vec<Vec<usize>>> {
        match toposort(&self.graph, None) {
            Ok(order) => Ok(order.into_iter().map(NodeIndex::index).collect()),
            Err(_) => Err(kosaraju_scc(&self.graph)
                .into_iter()
                .filter(|group| {
                    group.len() > 1 || group.iter().any(|n| self.graph.contains_edge(*n, *n))
                })
                .map(|group| {
                    let mut group: Vec<usize> = group.into_iter().map(NodeIndex::index).collect();
                    group.sort_unstable();
                    group
                })
                .collect()),
        }
    }

    /// What `reader` reads directly.
    pub fn sources(&self, reader: usize) -> Vec<usize> {
        let mut sources: Vec<usize> = self
            .graph
            .neighbors_directed(NodeIndex::new(reader), petgraph::Direction::Incoming)
            .map(NodeIndex::index)
            .collect();
        sources.sort_unstable();
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_come_first_and_circles_are_named() {
        let mut chain = Dependencies::new(3);
        chain.add(0, 1);
        chain.add(1, 2);
        assert_eq!(chain.order().unwrap(), [2, 1, 0]);
        assert_eq!(chain.sources(0), [1]);
        chain.add(2, 0);
        assert_eq!(chain.order().unwrap_err(), [[0, 1, 2]]);
        let mut own = Dependencies::new(2);
        own.add(1, 1);
        assert_eq!(own.order().unwrap_err(), [[1]]);
    }
}
