// SPDX-License-Identifier: Apache-2.0

package control

import "time"

// keeping is a DataPlane that outlives its process by what may be taken away meanwhile.
type keeping interface {
	// KeepAgain looks for that, puts right what it can, and says what there is to say.
	KeepAgain() (note string, err error)
}

// keepEvery is how often that is looked at: for so long the process may die and its data plane with it.
const keepEvery = 10 * time.Second

// keepAgain logs what is new of it, and looks again later.
func (c *Controller) keepAgain() {
	c.opt.Files.Retry()
	defer func() {
		c.tasks.keep.In(keepEvery)
		c.tellStorage()
	}()
	k, is := c.opt.DataPlane.(keeping)
	if !is {
		return
	}
	note, err := k.KeepAgain()
	if note != "" {
		c.opt.Log.Warn(note)
	}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != c.notKept {
		c.opt.Log.Warn("the data plane ends with this process: " + problem)
	}
	c.notKept = problem
}
