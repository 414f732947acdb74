use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// Handing in trajectories, following weights.
    Act,
    /// Drawing samples and all that a learner tells a replay server, following weights.
    Train,
    /// Having positions evaluated, following weights.
    Infer,
    /// Changing tables, quarantine.
    Admin,
}

impl Scope {
    const ALL: [Self; 4] = [Self::Act, Self::Train, Self::Infer, Self::Admin];

    fn name(self) -> &'static str {
        match self {
            Self::Act => "act",
            Self::Train => "train",
            Self::Infer => "infer",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Some scopes, written with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scopes(BTreeSet<Scope>);

impl Scopes {
    fn any_of(&self, wanted: &[Scope]) -> bool {
        wanted.iter().any(|scope| self.0.contains(scope))
    }
}

impl FromStr for Scopes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |name: &str| {
            let found = Scope::ALL.into_iter().find(|scope| scope.name() == name);
            found.ok_or_else(|| format!("`{name}` is no scope; there are {}", joined(Scope::ALL, ", ")))
        };
        text.split(',').map(one).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(self.0.iter().copied(), ", "))
    }
}

fn joined(scopes: impl IntoIterator<Item = Scope>, separator: &str) -> String {
    scopes.into_iter().map(Scope::name).collect::<Vec<_>>().join(separator)
}

/// What a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing: whoever restarts processes has no token.
    Nothing,
    /// A token that the server knows: reading is for everybody who takes part.
    AnyToken,
    /// One of these scopes.
    OneOf(&'static [Scope]),
}

impl Need {
    /// By the path of a call, `/package.Service/Method`. What is not listed needs `admin`, so that a method which is
    /// forgotten here is closed and not open.
    pub(super) fn of(path: &str) -> Self {
        Self::listed(path).unwrap_or(Self::OneOf(&[Scope::Admin]))
    }

    pub(super) fn listed(path: &str) -> Option<Self> {
        use Need::{AnyToken, Nothing, OneOf};
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        Some(match (service, method) {
            ("grpc.health.v1.Health", _) => Nothing,
            ("grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection", _) => AnyToken,
            ("zerofleet.replay.v1.Replay", "Insert") => OneOf(&[Scope::Act]),
            ("zerofleet.replay.v1.Replay", "Sample" | "UpdatePriorities" | "Report") => OneOf(&[Scope::Train]),
            ("zerofleet.replay.v1.Replay", "Stats" | "List" | "Get" | "Actors") => AnyToken,
            ("zerofleet.replay.v1.Replay", "Configure" | "Quarantine" | "Release") => OneOf(&[Scope::Admin]),
            ("zerofleet.weights.v1.Weights", "Subscribe" | "Fetch") => OneOf(&[Scope::Act, Scope::Train, Scope::Infer]),
            ("zerofleet.inference.v1.Inference" | "inference.GRPCInferenceService", _) => OneOf(&[Scope::Infer]),
            _ => return None,
        })
    }

    /// What is missing in `scopes`, in words.
    pub(super) fn missing(self, scopes: &Scopes) -> Option<String> {
        match self {
            Self::Nothing | Self::AnyToken => None,
            Self::OneOf(wanted) if scopes.any_of(wanted) => None,
            Self::OneOf(wanted) => Some(joined(wanted.iter().copied(), " or ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    /// The paths of all methods of our services.
    fn methods() -> Vec<String> {
        let files = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap().file;
        let in_file = |file: prost_types::FileDescriptorProto| {
            let package = file.package().to_owned();
            file.service.into_iter().flat_map(move |service| {
                let service_name = format!("{package}.{}", service.name());
                service.method.into_iter().map(move |method| format!("/{service_name}/{}", method.name()))
            })
        };
        files.into_iter().flat_map(in_file).collect()
    }

    #[test]
    fn every_method_of_our_services_has_its_scope() {
        let methods = methods();
        assert!(methods.len() >= 12, "{methods:?}");
        for method in methods {
            assert!(Need::listed(&method).is_some_and(|need| need != Need::Nothing), "{method} has no scope");
        }
    }

    #[test]
    fn a_method_that_is_not_listed_needs_admin() {
        for path in ["/zerofleet.replay.v1.Replay/Drop", "/zerofleet.new.v1.New/Ask", "/", "", "nonsense", "*"] {
            assert_eq!(Need::of(path), Need::OneOf(&[Scope::Admin]), "{path}");
        }
    }

    #[test]
    fn only_health_is_open_to_who_has_no_token() {
        assert_eq!(Need::of("/grpc.health.v1.Health/Check"), Need::Nothing);
        assert_eq!(Need::of("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"), Need::AnyToken);
    }

    #[test]
    fn scopes_are_read_by_name_and_a_wrong_one_is_named() {
        let scopes: Scopes = "train,act".parse().unwrap();
        assert_eq!(scopes.to_string(), "act, train");
        let error = "act,Train".parse::<Scopes>().unwrap_err();
        assert_eq!(error, "`Train` is no scope; there are act, train, infer, admin");
    }
}
