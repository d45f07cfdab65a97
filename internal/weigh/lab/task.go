// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrNoTask means that a worker does not have a task: it is a jeoul of another version.
var ErrNoTask = errors.New("no such task")

// Task is a piece of work on a host, which runs where the host is: in this process, for a namespace, or in a worker on
// another machine. Arguments and results must survive JSON.
type Task[Args, Result any] struct {
	name string
	do   func(ctx context.Context, h *Host, args Args) (Result, error)
}

// tasks are all tasks by name, in the form in which a worker performs them.
var tasks = map[string]func(ctx context.Context, h *Host, args []byte) ([]byte, error){}

// NewTask declares a task; do runs on a host of this process. NewTask is called for package variables, and panics if
// the name is taken.
func NewTask[Args, Result any](name string, do func(ctx context.Context, h *Host, args Args) (Result, error)) Task[Args,
	Result] {
	if tasks[name] != nil {
		panic("two tasks are called " + name)
	}
	tasks[name] = func(ctx context.Context, h *Host, args []byte) ([]byte, error) {
		var in Args
		if err := json.Unmarshal(args, &in); err != nil {
			return nil, fmt.Errorf("read what task %s is to do: %w", name, err)
		}
		out, err := do(ctx, h, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}
	return Task[Args, Result]{name, do}
}

// On performs the task on a host.
func (t Task[Args, Result]) On(ctx context.Context, h *Host, args Args) (Result, error) {
	if h.machine == nil {
		return t.do(ctx, h, args)
	}
	var out Result
	text, err := json.Marshal(args)
	if err == nil {
		text, err = h.machine.Call(ctx, t.name, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return out, fmt.Errorf("%s: %w", h.Name, err)
	}
	return out, nil
}

// Perform performs a task by its name: the worker's end of Machine.Call.
func Perform(ctx context.Context, h *Host, name string, args []byte) ([]byte, error) {
	task := tasks[name]
	if task == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoTask, name)
	}
	return task(ctx, h, args)
}

// taskTimeout is how long a task without its own context may take.
const taskTimeout = 20 * time.Second

// runTask performs a task that ends within moments, or fails.
func runTask[Args, Result any](t Task[Args, Result], h *Host, args Args) (Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), taskTimeout)
	defer cancel()
	return t.On(ctx, h, args)
}

// nothing is the result of a task without one, or its argument.
type nothing struct{}
