use std::num::NonZeroU32;

use crate::{InvalidSelector, InvalidWindow, Retention, Selector, Window};

/// The settings of a [`Table`](crate::Table); all of them may change while it holds trajectories.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableSettings {
    /// The rule that chooses the next item of the window.
    pub selector: Selector,
    /// The window of the draws, and the capacity in items.
    pub window: Window,
    /// The rules by which trajectories leave before the capacity is reached.
    pub retention: Retention,
    /// The maximum number of draws of an item: afterwards it is deleted from sampling. `None`: unlimited, and draws are
    /// not counted.
    pub max_times_sampled: Option<NonZeroU32>,
}

/// The reason for which the settings of a table are rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidTable {
    /// The selector's.
    #[error(transparent)]
    Selector(#[from] InvalidSelector),
    /// The window's.
    #[error(transparent)]
    Window(#[from] InvalidWindow),
}

impl TableSettings {
    /// Uniform draws from a window, any number of times, with no bound but the window's capacity.
    #[must_use]
    pub fn uniform(window: Window) -> Self {
        Self { selector: Selector::Uniform, window, retention: Retention::default(), max_times_sampled: None }
    }

    /// Checks selector and window; any retention makes sense.
    ///
    /// # Errors
    /// The first parameter out of range.
    pub fn check(self) -> Result<Self, InvalidTable> {
        self.selector.check()?;
        self.window.check()?;
        Ok(self)
    }

    /// Returns true if the table keeps state for each item: all selectors and limits but plain uniform draws need it.
    pub(crate) fn tells_items_apart(&self) -> bool {
        self.selector != Selector::Uniform || self.max_times_sampled.is_some()
    }
}
