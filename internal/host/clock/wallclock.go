// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"reflect"
	"sync"
	"time"
)

// WallClock converts times of this process to the wall clock as it is set now. By the wall clock at the time of the
// event, an event of a minute ago would appear to be an hour old after the clock was set forward by an hour.
type WallClock struct {
	base Reading

	mu     sync.Mutex
	offset time.Duration
}

// NewWallClock returns a WallClock for times taken after a reading.
func NewWallClock(base Reading) *WallClock { return &WallClock{base: base} }

// minStep is the least difference that counts as a step of the clock: reading two clocks takes time, too.
const minStep = 100 * time.Millisecond

// Of returns a function that converts times to the wall clock of the reading now; nil where no time needs converting.
// Until the clock is set again, the function converts a time to the same value every time. After a suspend of the
// machine, which the monotonic clock does not count, times stay unchanged.
func (p *WallClock) Of(now Reading) func(time.Time) time.Time {
	passed, up := now.now.Sub(p.base.now), now.Up-p.base.Up
	set := now.Wall.Sub(p.base.Wall) - up
	p.mu.Lock()
	defer p.mu.Unlock()
	if (set - p.offset).Abs() >= minStep {
		p.offset = set
	}
	if p.offset == 0 || (up-passed).Abs() >= minStep {
		return nil
	}
	set = p.offset
	return func(t time.Time) time.Time {
		wall := t.Round(0)
		if t == wall || wall.IsZero() {
			return t // no monotonic reading
		}
		fromWall := p.base.Wall.Add(t.Sub(p.base.now) + set)
		if fromWall.Sub(wall).Abs() < minStep {
			return t
		}
		return fromWall
	}
}

// Map returns a copy of a value in which every time is converted, also behind pointers and in slices. It does not
// modify memory that the value shares with others.
func Map[T any](value T, convert func(time.Time) time.Time) T {
	mapTimes(reflect.ValueOf(&value).Elem(), convert)
	return value
}

var timeType = reflect.TypeFor[time.Time]()

// mapTimes replaces the times in a value that the caller owns. It copies values behind pointers before it changes them.
func mapTimes(value reflect.Value, convert func(time.Time) time.Time) {
	switch t := value.Type(); {
	case t == timeType:
		value.Set(reflect.ValueOf(convert(value.Interface().(time.Time))))
		return
	case !hasTimes(t):
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				mapTimes(value.Field(i), convert)
			}
		}
	case reflect.Pointer:
		if !value.IsNil() {
			own := reflect.New(value.Type().Elem())
			own.Elem().Set(value.Elem())
			mapTimes(own.Elem(), convert)
			value.Set(own)
		}
	case reflect.Slice:
		if !value.IsNil() {
			own := reflect.MakeSlice(value.Type(), value.Len(), value.Len())
			reflect.Copy(own, value)
			value.Set(own)
		}
		for i := range value.Len() {
			mapTimes(value.Index(i), convert)
		}
	}
}

// known caches hasTimes by type.
var known sync.Map

// hasTimes returns whether values of a type can contain times that mapTimes reaches.
func hasTimes(t reflect.Type) bool {
	if seen, ok := known.Load(t); ok {
		return seen.(bool)
	}
	seen := false
	switch t.Kind() {
	case reflect.Struct:
		seen = t == timeType
		for i := 0; i < t.NumField() && !seen; i++ {
			seen = t.Field(i).IsExported() && hasTimes(t.Field(i).Type)
		}
	case reflect.Pointer, reflect.Slice:
		seen = hasTimes(t.Elem())
	}
	known.Store(t, seen)
	return seen
}
