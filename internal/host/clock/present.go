// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"reflect"
	"sync"
	"time"
)

// Present tells times of this process to others by the wall clock as it is set now: by that of the moment that they
// were taken at, what was a minute ago would seem to be an hour ago where the clock was set forward since.
type Present struct {
	base Reading

	mu  sync.Mutex
	set time.Duration
}

// NewPresent returns one for times that are taken from a reading on.
func NewPresent(base Reading) *Present { return &Present{base: base} }

// leastSet is the least difference that is a setting of the clock: reading two clocks takes time, too.
const leastSet = 100 * time.Millisecond

// Of returns what tells times, where now is the present reading; nil: each is as it should be. While a clock stays as
// it was set, a time is told alike every time. Where the machine has slept, which the monotonic clock does not count,
// times stay as they are.
func (p *Present) Of(now Reading) func(time.Time) time.Time {
	passed, up := now.now.Sub(p.base.now), now.Up-p.base.Up
	set := now.Wall.Sub(p.base.Wall) - up
	p.mu.Lock()
	defer p.mu.Unlock()
	if (set - p.set).Abs() >= leastSet {
		p.set = set
	}
	if p.set == 0 || (up-passed).Abs() >= leastSet {
		return nil
	}
	set = p.set
	return func(t time.Time) time.Time {
		wall := t.Round(0)
		if t == wall || wall.IsZero() {
			return t // by the wall clock alone
		}
		told := p.base.Wall.Add(t.Sub(p.base.now) + set)
		if told.Sub(wall).Abs() < leastSet {
			return t
		}
		return told
	}
}

// Map returns a value with other times in all that it has and points to. What others may have of it, too, stays as it
// is.
func Map[T any](value T, of func(time.Time) time.Time) T {
	mapTimes(reflect.ValueOf(&value).Elem(), of)
	return value
}

var timeType = reflect.TypeFor[time.Time]()

// mapTimes changes times in a value that is nobody else's, but for what it points to.
func mapTimes(value reflect.Value, of func(time.Time) time.Time) {
	switch t := value.Type(); {
	case t == timeType:
		value.Set(reflect.ValueOf(of(value.Interface().(time.Time))))
		return
	case !hasTimes(t):
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				mapTimes(value.Field(i), of)
			}
		}
	case reflect.Pointer:
		if !value.IsNil() {
			own := reflect.New(value.Type().Elem())
			own.Elem().Set(value.Elem())
			mapTimes(own.Elem(), of)
			value.Set(own)
		}
	case reflect.Slice:
		if !value.IsNil() {
			own := reflect.MakeSlice(value.Type(), value.Len(), value.Len())
			reflect.Copy(own, value)
			value.Set(own)
		}
		for i := range value.Len() {
			mapTimes(value.Index(i), of)
		}
	}
}

// known says of types whether their values may have times.
var known sync.Map

// hasTimes says whether values of a type may have times that mapTimes finds.
func hasTimes(t reflect.Type) bool {
	if has, ok := known.Load(t); ok {
		return has.(bool)
	}
	has := false
	switch t.Kind() {
	case reflect.Struct:
		has = t == timeType
		for i := 0; i < t.NumField() && !has; i++ {
			has = t.Field(i).IsExported() && hasTimes(t.Field(i).Type)
		}
	case reflect.Pointer, reflect.Slice:
		has = hasTimes(t.Elem())
	}
	known.Store(t, has)
	return has
}
