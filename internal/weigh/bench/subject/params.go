// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"fmt"
	"slices"
	"strings"
)

// ParamScheduler is the parameter of subjects with a selectable scheduler.
const ParamScheduler = "scheduler"

// Param is a parameter of a subject.
type Param struct {
	Name string
	// Check returns an error that wraps ErrParam and names the possible values.
	Check func(value any) error
	// Optional means that a suite may omit the parameter, which then has no value.
	Optional bool
	// Several means that only several balancers have the parameter.
	Several bool
}

// Params maps a parameter's name to its value, an int or a string.
type Params map[string]any

// OneOf returns a check for certain words.
func OneOf(words ...string) func(any) error {
	return func(value any) error {
		if word, ok := value.(string); ok && slices.Contains(words, word) {
			return nil
		}
		return fmt.Errorf("%w: %v; use %s", ErrParam, value, strings.Join(words, " or "))
	}
}

// Positive returns a check for whole numbers from 1 to most.
func Positive(most int) func(any) error {
	return func(value any) error {
		if number, ok := value.(int); ok && number >= 1 && number <= most {
			return nil
		}
		return fmt.Errorf("%w: %v; use a whole number from 1 to %d", ErrParam, value, most)
	}
}
