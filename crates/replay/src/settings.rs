use std::num::NonZeroU32;

use crate::{InvalidSelector, InvalidWindow, Retention, Selector, Window};

/// What a [`Table`](crate::Table) holds to; all of it may change while it holds trajectories.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableSettings {
    /// Which item of the window is drawn next.
    pub selector: Selector,
    /// How far back it draws, and how many items it holds.
    pub window: Window,
    /// What makes trajectories leave before the capacity does.
    pub retention: Retention,
    /// How often an item may be drawn: afterwards it is deleted from sampling. `None`: any number of times, and draws
    /// are not counted.
    pub max_times_sampled: Option<NonZeroU32>,
}

/// Why the settings of a table make no sense.
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

    /// Whether the table must know something about each item: all but plain uniform draws do.
    pub(crate) fn tells_items_apart(&self) -> bool {
        self.selector != Selector::Uniform || self.max_times_sampled.is_some()
    }
}
