//! Columns whose kind differs between tasks. In a table of figures, one task may have a whole number where another one has a
//! fraction, or a negative number. The merged column then holds real numbers, or signed integers. Each of them is exactly the
//! number of its task.

use record::{Kind, Value};

/// The kind that holds the values of both kinds. `None` if there is none: kinds other than numbers hold only their own.
pub(crate) fn common_kind(first: Kind, second: Kind) -> Option<Kind> {
    match (first, second) {
        _ if first == second => Some(first),
        (Kind::Uint, Kind::Int) | (Kind::Int, Kind::Uint) => Some(Kind::Int),
        (Kind::Uint | Kind::Int, Kind::Real) | (Kind::Real, Kind::Uint | Kind::Int) => {
            Some(Kind::Real)
        }
        _ => None,
    }
}

/// A value as one of `kind`. `None` if `kind` does not have exactly this number.
pub(crate) fn widened(value: &Value, kind: Kind) -> Option<Value> {
    match (value, kind) {
        (Value::Uint(number), Kind::Int) => i64::try_from(*number).ok().map(Value::Int),
        (Value::Uint(number), Kind::Real) => exact_real(i128::from(*number)).map(Value::Real),
        (Value::Int(number), Kind::Real) => exact_real(i128::from(*number)).map(Value::Real),
        _ => Some(value.clone()),
    }
}

fn exact_real(number: i128) -> Option<f64> {
    let real = number as f64;
    (real as i128 == number).then_some(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_common_kind_and_texts_have_none() {
        assert_eq!(common_kind(Kind::Uint, Kind::Real), Some(Kind::Real));
        assert_eq!(common_kind(Kind::Int, Kind::Real), Some(Kind::Real));
        assert_eq!(common_kind(Kind::Int, Kind::Uint), Some(Kind::Int));
        assert_eq!(common_kind(Kind::Uint, Kind::Int), Some(Kind::Int));
        assert_eq!(common_kind(Kind::Uint, Kind::Uint), Some(Kind::Uint));
        assert_eq!(common_kind(Kind::Text, Kind::Text), Some(Kind::Text));
        assert_eq!(common_kind(Kind::Text, Kind::Real), None);
        assert_eq!(common_kind(Kind::Bool, Kind::Uint), None);
    }

    #[test]
    fn a_number_is_widened_exactly_or_not_at_all() {
        let real = |value: Value| widened(&value, Kind::Real);
        let largest = 1_u64 << 53;
        assert_eq!(real(Value::Uint(largest)), Some(Value::Real(9_007_199_254_740_992.0)));
        assert_eq!(real(Value::Uint(largest + 1)), None);
        assert_eq!(real(Value::Uint(u64::MAX)), None);
        assert_eq!(real(Value::Int(-3)), Some(Value::Real(-3.0)));
        assert_eq!(real(Value::Int(i64::MIN + 1)), None);
        assert_eq!(real(Value::Absent), Some(Value::Absent));
        let int = |value: Value| widened(&value, Kind::Int);
        assert_eq!(int(Value::Uint(largest + 1)), Some(Value::Int((1 << 53) + 1)));
        assert_eq!(int(Value::Uint(u64::MAX)), None);
        assert_eq!(int(Value::Int(-3)), Some(Value::Int(-3)));
        assert_eq!(widened(&Value::Uint(u64::MAX), Kind::Uint), Some(Value::Uint(u64::MAX)));
    }
}
