use std::sync::{Arc, Mutex, PoisonError};

use weights::{Architecture, Digest, Manifest};

use crate::choose::{ChosenPath, choose_path};
use crate::{Error, Path, Tower, TowerEvaluator};

/// What a CPU should compute networks with: `auto`, `libtorch`, or a path of this kernel by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Preference {
    /// This kernel on its widest path; libtorch for networks that it does not take.
    #[default]
    Auto,
    /// libtorch.
    Libtorch,
    /// This kernel on this path and no other.
    Only(Path),
}

impl Preference {
    /// The kernel it asks for, `None` where libtorch is to do everything; `bf16` says whether bfloat16 is allowed.
    #[must_use]
    pub fn kernel(self, bf16: bool) -> Option<Kernel> {
        match self {
            Self::Auto => Some(Kernel::new(None, bf16)),
            Self::Libtorch => None,
            Self::Only(path) => Some(Kernel::new(Some(path), bf16)),
        }
    }
}

impl std::fmt::Display for Preference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Libtorch => f.write_str("libtorch"),
            Self::Only(path) => path.fmt(f),
        }
    }
}

impl std::str::FromStr for Preference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "libtorch" => Ok(Self::Libtorch),
            _ => text.parse().map(Self::Only).map_err(|_| {
                let paths = Path::ALL.map(Path::name).join(", ");
                format!("`{text}` is not a CPU kernel: expected auto, libtorch, {paths}")
            }),
        }
    }
}

/// Hands evaluators to the threads of a process: the path is chosen once, each weights version is packed once.
#[derive(Debug)]
pub struct Kernel {
    only: Option<Path>,
    bf16: bool,
    packed: Mutex<Packed>,
}

#[derive(Debug, Default)]
struct Packed {
    /// The last choice and the network it was made for.
    choice: Option<(Architecture, ChosenPath)>,
    /// The last version.
    version: Option<(Digest, Arc<Tower>)>,
}

impl Kernel {
    /// A kernel that may use `only` this path, or else any; `bf16` says whether bfloat16 is allowed.
    #[must_use]
    pub fn new(only: Option<Path>, bf16: bool) -> Self {
        Self { only, bf16, packed: Mutex::default() }
    }

    /// An evaluator of a published version for one thread.
    ///
    /// # Errors
    /// As [`choose_path`] and [`Tower::new`]: [`Error::Unsupported`] says that another evaluator is needed, and so does
    /// [`Error::Unavailable`].
    pub fn evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> Result<TowerEvaluator, Error> {
        // What a thread that panicked left behind is whole: each part is assigned at once.
        let mut packed = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        let tower = match &packed.version {
            Some((digest, tower)) if *digest == manifest.digest => Arc::clone(tower),
            _ => {
                let path = self.path(&mut packed.choice, &manifest.architecture)?;
                let tower = Arc::new(Tower::new(&manifest.architecture, bytes, path)?);
                packed.version = Some((manifest.digest, Arc::clone(&tower)));
                tower
            }
        };
        Ok(TowerEvaluator::new(tower, manifest.version))
    }

    /// The path that was chosen, and why; `None` before the first weights.
    #[must_use]
    pub fn chosen(&self) -> Option<ChosenPath> {
        let packed = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        packed.choice.as_ref().map(|(_, chosen)| chosen.clone())
    }

    fn path(
        &self,
        choice: &mut Option<(Architecture, ChosenPath)>,
        architecture: &Architecture,
    ) -> Result<Path, Error> {
        if let Some((known, chosen)) = choice
            && known == architecture
        {
            return Ok(chosen.path);
        }
        let allowed = |path: Path| match self.only {
            Some(only) => path == only,
            None => self.bf16 || !path.is_bf16(),
        };
        let chosen = choose_path(architecture, allowed)?;
        let path = chosen.path;
        *choice = Some((architecture.clone(), chosen));
        Ok(path)
    }
}
