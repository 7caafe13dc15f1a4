//! Annotations: actions at places of the guest, and the programs that compute the values that annotations record.

mod list;
mod program;

pub use list::{
    ACTIONS_MAX, ANNOTATIONS_MAX, Action, Annotation, AnnotationList, CHECKPOINTS_MAX,
    MachineMemory, Place, SPANS_MAX, VALUES_MAX,
};
pub use program::{Guest, Program, REGISTERS, STEPS_MAX, Step};
