//! A block of code as the processor fetches it: prepared once, read on each execution.

/// Code whose addresses follow one another, virtual and physical: it lies in one page of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSpan {
    /// Virtual address of the first byte.
    pub virtual_address: u64,
    /// Physical address of the first byte.
    pub physical: u64,
    /// Length, bytes.
    pub bytes: u32,
}

/// Lines of a span. As they follow one another, the first is enough, and nothing has to be looked up
/// elsewhere when the block executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineRun {
    /// An address in the page.
    pub(crate) virtual_address: u64,
    /// Where the first line begins.
    pub(crate) physical: u64,
    /// Length of all lines, bytes.
    pub(crate) bytes: u32,
}

impl LineRun {
    fn new(line_shift: u32, span: CodeSpan) -> LineRun {
        if span.bytes == 0 {
            return LineRun::default();
        }
        let in_line = (1 << line_shift) - 1;
        let offset = span.physical & in_line;
        let bytes = (offset + u64::from(span.bytes) + in_line) & !in_line;
        LineRun {
            virtual_address: span.virtual_address,
            physical: span.physical - offset,
            bytes: u32::try_from(bytes).expect("lines of a page"),
        }
    }
}

/// A block of instructions that execute one after the other, for [`BlockingMachine::execute_block`].
///
/// [`BlockingMachine::execute_block`]: crate::BlockingMachine::execute_block
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct CodeBlock {
    pub(crate) instructions: u32,
    first_bytes: u32,
    /// Zero, if the block lies in one page.
    second_bytes: u32,
    /// In the page of the first run. Small enough that a description with all of a block fits in a
    /// line of the host: so there is no second address.
    virtual_address: u64,
    /// From there to an address in the page of the second run.
    second_offset: u32,
    first_physical: u64,
    second_physical: u64,
}

impl CodeBlock {
    /// A block of `instructions`, in the one or two pages that it spans. `fetch_line_shift` is that of
    /// the model that it will execute on: [`BlockingMachine::fetch_line_shift`].
    ///
    /// [`BlockingMachine::fetch_line_shift`]: crate::BlockingMachine::fetch_line_shift
    #[must_use]
    pub fn new(
        fetch_line_shift: u32,
        instructions: u32,
        first: CodeSpan,
        second: Option<CodeSpan>,
    ) -> CodeBlock {
        let run = LineRun::new(fetch_line_shift, first);
        let behind = second.map_or(LineRun::default(), |span| LineRun::new(fetch_line_shift, span));
        // Of the page behind, or of nothing.
        let offset = behind.virtual_address.wrapping_sub(run.virtual_address);
        CodeBlock {
            instructions,
            first_bytes: run.bytes,
            second_bytes: behind.bytes,
            virtual_address: run.virtual_address,
            second_offset: offset as u32,
            first_physical: run.physical,
            second_physical: behind.physical,
        }
    }

    /// The lines in the page in which it begins.
    #[inline(always)]
    pub(crate) fn first(&self) -> LineRun {
        LineRun {
            virtual_address: self.virtual_address,
            physical: self.first_physical,
            bytes: self.first_bytes,
        }
    }

    /// The lines in the page behind; of no bytes, if it lies in one page.
    #[inline(always)]
    pub(crate) fn second(&self) -> LineRun {
        LineRun {
            virtual_address: self.virtual_address.wrapping_add(self.second_offset.into()),
            physical: self.second_physical,
            bytes: self.second_bytes,
        }
    }

    /// How many instructions it has.
    #[must_use]
    pub fn instructions(&self) -> u32 {
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_the_lines_that_its_bytes_touch() {
        let lines = |address: u64, bytes: u32| {
            let span = CodeSpan { virtual_address: address, physical: address + 4096, bytes };
            let run = LineRun::new(4, span);
            assert!(bytes == 0 || run.physical == (address + 4096) & !15);
            run.bytes / 16
        };
        assert_eq!([lines(0, 0), lines(0, 1), lines(0, 16), lines(0, 17)], [0, 1, 1, 2]);
        assert_eq!([lines(15, 1), lines(15, 2), lines(15, 17), lines(15, 18)], [1, 2, 2, 3]);
    }
}
