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
    pub(crate) bytes: u64,
}

impl LineRun {
    fn new(line_shift: u32, span: CodeSpan) -> LineRun {
        if span.bytes == 0 {
            return LineRun::default();
        }
        let in_line = (1 << line_shift) - 1;
        let offset = span.physical & in_line;
        LineRun {
            virtual_address: span.virtual_address,
            physical: span.physical - offset,
            bytes: (offset + u64::from(span.bytes) + in_line) & !in_line,
        }
    }
}

/// A block of instructions that execute one after the other, for [`InOrder::block`].
///
/// [`InOrder::block`]: crate::InOrder::block
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct CodeBlock {
    pub(crate) instructions: u32,
    pub(crate) first: LineRun,
    /// Of no lines, if the block lies in one page.
    pub(crate) second: LineRun,
}

impl CodeBlock {
    /// A block of `instructions`, in the one or two pages that it spans. `fetch_line_shift` is that of
    /// the model that it will execute on: [`InOrder::fetch_line_shift`].
    ///
    /// [`InOrder::fetch_line_shift`]: crate::InOrder::fetch_line_shift
    #[must_use]
    pub fn new(
        fetch_line_shift: u32,
        instructions: u32,
        first: CodeSpan,
        second: Option<CodeSpan>,
    ) -> CodeBlock {
        CodeBlock {
            instructions,
            first: LineRun::new(fetch_line_shift, first),
            second: second.map_or(LineRun::default(), |span| LineRun::new(fetch_line_shift, span)),
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
