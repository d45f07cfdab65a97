// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"fmt"
	"slices"
	"strings"
)

// ParamScheduler is the parameter of subjects whose scheduler can be chosen.
const ParamScheduler = "scheduler"

// Param is something that can vary in a subject.
type Param struct {
	Name string
	// Check returns an error that wraps ErrParam and says what is possible.
	Check func(value any) error
	// Optional: a suite may leave it out; it then has no value.
	Optional bool
	// Several: it is of several balancers: one has nothing that could vary by it.
	Several bool
}

// Params maps a parameter's name to its value, an int or a string.
type Params map[string]any

// OneOf makes a check for words.
func OneOf(words ...string) func(any) error {
	return func(value any) error {
		if word, ok := value.(string); ok && slices.Contains(words, word) {
			return nil
		}
		return fmt.Errorf("%w: %v; use %s", ErrParam, value, strings.Join(words, " or "))
	}
}

// Positive is a check for whole numbers from 1 up to most.
func Positive(most int) func(any) error {
	return func(value any) error {
		if number, ok := value.(int); ok && number >= 1 && number <= most {
			return nil
		}
		return fmt.Errorf("%w: %v; use a whole number from 1 to %d", ErrParam, value, most)
	}
}
