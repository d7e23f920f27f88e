def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def median(numbers: list[float]) -> float:
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle]
