// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"math/big"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

// evaluate reports whether a value meets an item. If not, it returns the value to write: the desired value, or one that
// preserves what the present value has beyond it.
func (it Item) evaluate(k setting.Key, now, want string) (good bool, write string) {
	if slices.ContainsFunc(it.Accept, func(other string) bool { return k.Same(now, other) }) {
		return true, now
	}
	switch it.Compare {
	case CompareAtLeast:
		return each(now, want, func(a, b *big.Int) *big.Int { return larger(a, b) })
	case CompareAtMost:
		return each(now, want, func(a, b *big.Int) *big.Int { return smaller(a, b) })
	case CompareCovers:
		return covers(now, want)
	case CompareCPUs:
		return setting.SameList(now, want), want
	case CompareNonzero:
		return strings.Trim(now, "0:") != "", want
	}
	return k.Same(now, want), want
}

// numbers parses a list of numbers; false: a field is no number.
func numbers(text string) ([]*big.Int, bool) {
	var list []*big.Int
	for _, field := range strings.Fields(text) {
		n, ok := new(big.Int).SetString(field, 10)
		if !ok {
			return nil, false
		}
		list = append(list, n)
	}
	return list, len(list) > 0
}

// each combines two lists number by number. The value is good if the combination changes nothing.
func each(now, want string, combine func(a, b *big.Int) *big.Int) (bool, string) {
	have, ok1 := numbers(now)
	wanted, ok2 := numbers(want)
	if !ok1 || !ok2 || len(have) != len(wanted) {
		return now == want, want
	}
	good := true
	var texts []string
	for i, n := range have {
		best := combine(n, wanted[i])
		good = good && best.Cmp(n) == 0
		texts = append(texts, best.String())
	}
	return good, strings.Join(texts, " ")
}

// covers reports whether a range of two numbers includes the wanted one, and returns the range that includes both.
func covers(now, want string) (bool, string) {
	have, ok1 := numbers(now)
	wanted, ok2 := numbers(want)
	if !ok1 || !ok2 || len(have) != 2 || len(wanted) != 2 {
		return now == want, want
	}
	low, high := smaller(have[0], wanted[0]), larger(have[1], wanted[1])
	return low.Cmp(have[0]) == 0 && high.Cmp(have[1]) == 0, low.String() + " " + high.String()
}

func larger(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func smaller(a, b *big.Int) *big.Int {
	if a.Cmp(b) > 0 {
		return b
	}
	return a
}
