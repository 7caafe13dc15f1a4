//! A fully associative LRU cache of any size: the twin that tells misses for want of room from misses for
//! want of ways.

use crate::hash::NumberMap;

const NONE: u32 = u32::MAX;

/// Lines in order of use, as a list through places.
#[derive(Clone, Debug)]
pub(super) struct Twin {
    places: NumberMap<u32>,
    lines: Vec<u64>,
    newer: Vec<u32>,
    older: Vec<u32>,
    newest: u32,
    oldest: u32,
    room: usize,
    /// Whether the last line that was asked for was in.
    pub(super) had: bool,
}

impl Twin {
    /// An empty one with room for `lines`, at least one.
    pub(super) fn new(lines: usize) -> Self {
        Twin {
            places: NumberMap::default(),
            lines: Vec::new(),
            newer: Vec::new(),
            older: Vec::new(),
            newest: NONE,
            oldest: NONE,
            room: lines,
            had: false,
        }
    }

    /// Asks for a line, and brings it in.
    pub(super) fn access(&mut self, line: u64) {
        let known = self.places.get(&line).copied();
        self.had = known.is_some();
        let place = match known {
            Some(place) => {
                self.unlink(place);
                place
            }
            None if self.lines.len() < self.room => {
                self.lines.push(line);
                self.newer.push(NONE);
                self.older.push(NONE);
                (self.lines.len() - 1) as u32
            }
            None => {
                let place = self.oldest;
                self.unlink(place);
                self.places.remove(&self.lines[place as usize]);
                self.lines[place as usize] = line;
                place
            }
        };
        if known.is_none() {
            self.places.insert(line, place);
        }
        self.link(place);
    }

    fn unlink(&mut self, place: u32) {
        let (newer, older) = (self.newer[place as usize], self.older[place as usize]);
        match newer {
            NONE => self.newest = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
    }

    fn link(&mut self, place: u32) {
        (self.newer[place as usize], self.older[place as usize]) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = place,
            newest => self.newer[newest as usize] = place,
        }
        self.newest = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_has_the_lines_used_last(
            room in 1usize..12,
            lines in prop::collection::vec(0u64..20, 1..200),
        ) {
            let mut twin = Twin::new(room);
            let mut stack: Vec<u64> = Vec::new();
            for line in lines {
                twin.access(line);
                let at = stack.iter().position(|other| *other == line);
                prop_assert_eq!(twin.had, at.is_some_and(|at| at < room));
                at.map(|at| stack.remove(at));
                stack.insert(0, line);
            }
        }
    }
}
