//! Chance that can be repeated: everything drawn comes from one seed.

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own, so that what it draws moves nothing else.
    pub fn branch(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `end` - 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to + 1 - from)
    }

    /// True in so many of a hundred cases.
    pub fn of_hundred(&mut self, cases: usize) -> bool {
        self.below(100) < cases
    }

    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    /// Some of the list, at least one, in their order.
    pub fn some<T: Clone>(&mut self, list: &[T], most: usize) -> Vec<T> {
        let count = self.between(1, most.min(list.len()).max(1));
        let mut kept: Vec<usize> = (0..list.len()).collect();
        while kept.len() > count {
            let at = self.below(kept.len());
            kept.remove(at);
        }
        kept.into_iter().map(|i| list[i].clone()).collect()
    }
}
