// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// truth is the value of a condition, which may be unknown.
type truth int

const (
	unknown truth = iota
	holds
	fails
)

func truthOf(is bool) truth {
	if is {
		return holds
	}
	return fails
}

func (t truth) not() truth { return [...]truth{unknown, fails, holds}[t] }

// branches is a conditional block of the preprocessor (.if), section 2.4 of HAProxy's configuration manual.
type branches struct {
	// now is whether the current branch is taken, and before whether an earlier one is.
	now, before truth
}

// preprocessor tracks which lines apply.
type preprocessor struct {
	*draft.Draft
	open []branches
}

// holds returns whether the current lines apply: the conditions of all open blocks must hold.
func (p *preprocessor) holds() truth {
	all := holds
	for _, b := range p.open {
		switch b.now {
		case fails:
			return fails
		case unknown:
			all = unknown
		}
	}
	return all
}

// take reads a line of the preprocessor; false: the line is none.
func (p *preprocessor) take(l draft.Line, words []string) bool {
	if len(words) == 0 || !strings.HasPrefix(words[0], ".") {
		return false
	}
	condition := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(l.Text), words[0]))
	inner := len(p.open) - 1
	switch word := words[0]; {
	case word == ".if":
		now := evaluate(condition)
		p.open = append(p.open, branches{now: now, before: now})
	case word == ".elif" && inner >= 0, word == ".else" && inner >= 0:
		b := &p.open[inner]
		own := holds
		if word == ".elif" {
			own = evaluate(condition)
		}
		switch {
		case b.before == holds || own == fails:
			b.now = fails
		case b.before == unknown:
			b.now = unknown
		default:
			b.now = own
		}
		if b.before == fails || own == holds && b.before != unknown {
			b.before = own
		}
	case word == ".endif" && inner >= 0:
		p.open = p.open[:inner]
	case slices.Contains([]string{".notice", ".warning", ".diag"}, word):
		p.Needless(l.At, "is a message of HAProxy's as it starts")
		return true
	case word == ".alert":
		p.Needless(l.At, "keeps HAProxy from starting where it is reached")
		return true
	default:
		p.Left(l.At, "no block of the preprocessor is open here")
		return true
	}
	if slices.ContainsFunc(p.open, func(b branches) bool { return b.now == unknown }) {
		p.Left(l.At, undecided)
	} else {
		p.Carry(l.At)
	}
	return true
}

const undecided = "depends on the HAProxy and the environment that it runs in, which are not known here; write the lines that hold without .if"

// comparison is a predicate that compares two texts.
var comparison = regexp.MustCompile(`^(streq|strneq)\(\s*"?([^",$()]*)"?\s*,\s*"?([^",$()]*)"?\s*\)$`)

// evaluate returns the value of a condition. A condition on a version, a feature or a variable is unknown.
func evaluate(condition string) truth {
	condition = strings.TrimSpace(condition)
	if rest, negated := strings.CutPrefix(condition, "!"); negated {
		return evaluate(rest).not()
	}
	if n, err := strconv.Atoi(condition); err == nil || condition == "" {
		return truthOf(n != 0)
	}
	if match := comparison.FindStringSubmatch(condition); match != nil {
		return truthOf((match[2] == match[3]) == (match[1] == "streq"))
	}
	return unknown
}
