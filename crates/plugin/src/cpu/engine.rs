//! The model that follows the blocks and accesses of a vCPU: the model of a level of detail, or shadow caches.
//!
//! A [`Cpu`](super::Cpu) holds its engine from its creation on. The functions `..._unchecked` are for callbacks, which
//! run at each block or access and know the engine.

use std::hint::unreachable_unchecked;
use std::ptr::NonNull;

use machine::BlockingMachine;

use crate::models::pipeline::Pipeline;
use crate::models::shadow_caches::ShadowCacheModels;

/// The model of a vCPU. It is never freed, because translated code may use it until the process ends.
pub(crate) enum Engine {
    /// No model: blocks are counted only.
    Absent,
    /// The model of the level `timed`.
    Timed(Box<BlockingMachine>),
    /// The core of the level `ooo`.
    Ooo(Box<Pipeline>),
    /// Shadow caches, at the level `count`. All vCPUs use the same ones.
    ShadowCaches(NonNull<ShadowCacheModels>),
}

impl Engine {
    /// Whether the engine is a model that counts cycles.
    pub(super) fn is_model(&self) -> bool {
        matches!(self, Engine::Timed(_) | Engine::Ooo(_))
    }

    pub(super) fn timed(&mut self) -> Option<&mut BlockingMachine> {
        if let Engine::Timed(model) = self { Some(model) } else { None }
    }

    pub(super) fn pipeline(&mut self) -> Option<&mut Pipeline> {
        if let Engine::Ooo(pipeline) = self { Some(pipeline) } else { None }
    }

    pub(super) fn shadow_caches(&mut self) -> Option<&mut ShadowCacheModels> {
        let Engine::ShadowCaches(shadow_caches) = self else { return None };
        // SAFETY: never freed; one thread runs all vCPUs, and no use is nested in another.
        Some(unsafe { shadow_caches.as_mut() })
    }

    /// The model of the level `timed`, without a check.
    ///
    /// # Safety
    /// The engine is [`Engine::Timed`]. Callbacks of this level know that: they are registered only then.
    #[inline(always)]
    pub(super) unsafe fn timed_unchecked(&mut self) -> &mut BlockingMachine {
        match self {
            Engine::Timed(model) => model,
            // SAFETY: the caller knows the engine.
            _ => unsafe { unreachable_unchecked() },
        }
    }

    /// The core of the level `ooo`, without a check.
    ///
    /// # Safety
    /// The engine is [`Engine::Ooo`]. Callbacks of this level know that: they are registered only then.
    #[inline(always)]
    pub(super) unsafe fn pipeline_unchecked(&mut self) -> &mut Pipeline {
        match self {
            Engine::Ooo(pipeline) => pipeline,
            // SAFETY: the caller knows the engine.
            _ => unsafe { unreachable_unchecked() },
        }
    }

    /// The shadow caches, without a check.
    ///
    /// # Safety
    /// The engine is [`Engine::ShadowCaches`]. Callbacks with shadow caches know that: they are registered only then.
    #[inline(always)]
    pub(super) unsafe fn shadow_caches_unchecked(&mut self) -> &mut ShadowCacheModels {
        match self {
            // SAFETY: as in `shadow_caches`.
            Engine::ShadowCaches(shadow_caches) => unsafe { shadow_caches.as_mut() },
            // SAFETY: the caller knows the engine.
            _ => unsafe { unreachable_unchecked() },
        }
    }
}
