// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// retryDelay is how long a status waits that could not be written.
const retryDelay = 200 * time.Millisecond

// statusWriter writes the status of a pod, the last one only, and as often as it takes.
type statusWriter struct {
	kubelet *kubelet
	pod     *corev1.Pod

	mu     sync.Mutex
	wanted *corev1.PodStatus
	final  bool
	// changed has a value after each change; ended is closed when no other follows.
	changed chan struct{}
	ended   chan struct{}
}

func newStatusWriter(k *kubelet, pod *corev1.Pod) *statusWriter {
	return &statusWriter{kubelet: k, pod: pod, changed: make(chan struct{}, 1), ended: make(chan struct{})}
}

// set has a status written. After the final one, the pod's object is deleted.
func (s *statusWriter) set(status *corev1.PodStatus, final bool) {
	s.mu.Lock()
	s.wanted, s.final = status, final
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *statusWriter) stop() { close(s.ended) }

// run writes until the final status is written, or the kubelet is killed.
func (s *statusWriter) run() {
	ended := s.ended
	for {
		select {
		case <-s.changed:
		case <-ended:
			ended = nil // a final status may still have to be written
		case <-s.kubelet.ctx.Done():
			return
		}
		s.mu.Lock()
		status, final := s.wanted, s.final
		s.wanted = nil
		s.mu.Unlock()
		if status != nil && !s.writeUntilDone(status, final) {
			continue
		}
		if final || ended == nil {
			return
		}
	}
}

// writeUntilDone tries until the status is written, or is no longer wanted: then it returns false.
func (s *statusWriter) writeUntilDone(status *corev1.PodStatus, final bool) bool {
	for {
		err := s.write(status)
		if err == nil && final {
			err = s.delete()
		}
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return true
		}
		s.kubelet.log.Warn("write a pod's status", "pod", s.pod.Name, "error", err)
		select {
		case <-time.After(retryDelay):
		case <-s.kubelet.ctx.Done():
			return true
		}
		s.mu.Lock()
		newer := s.wanted != nil
		s.mu.Unlock()
		if newer {
			return false
		}
	}
}

// write patches the status: conditions of others stay.
func (s *statusWriter) write(status *corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": s.pod.UID}, "status": status})
	if err != nil {
		return err
	}
	pods := s.kubelet.client.CoreV1().Pods(s.pod.Namespace)
	_, err = pods.Patch(s.kubelet.ctx, s.pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}

// delete removes the object of a pod that has ended.
func (s *statusWriter) delete() error {
	return s.kubelet.client.CoreV1().Pods(s.pod.Namespace).Delete(s.kubelet.ctx, s.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(s.pod.UID))})
}

func metaTime(t time.Time) metav1.Time { return metav1.NewTime(t) }

// publish writes the pod's status of now.
func (w *podWorker) publish() {
	ready := true
	for _, c := range w.containers {
		ready = ready && c.ready
	}
	w.status.set(w.currentStatus(corev1.PodRunning, ready), false)
}

// publishEnd writes that the pod has ended, and has its object deleted.
func (w *podWorker) publishEnd() {
	phase := corev1.PodSucceeded
	for _, c := range w.containers {
		if c.last != nil && c.last.ExitCode != 0 {
			phase = corev1.PodFailed
		}
	}
	w.status.set(w.currentStatus(phase, false), true)
}

// publishFailure writes why the pod cannot start.
func (w *podWorker) publishFailure(err error) {
	status := w.currentStatus(corev1.PodPending, false)
	status.Reason, status.Message = "FailedCreatePodSandBox", err.Error()
	w.status.set(status, false)
}

func (w *podWorker) currentStatus(phase corev1.PodPhase, ready bool) *corev1.PodStatus {
	truth := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}
	condition := func(kind corev1.PodConditionType, is bool) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: truth[is], LastTransitionTime: metav1.Now()}
	}
	host := w.kubelet.node.Host
	status := &corev1.PodStatus{Phase: phase, StartTime: ptr.To(metaTime(w.started)), HostIP: host.IPv4.String(),
		HostIPs: []corev1.HostIP{{IP: host.IPv4.String()}, {IP: host.IPv6.String()}},
		Conditions: []corev1.PodCondition{condition(corev1.PodReadyToStartContainers, w.network != nil),
			condition(corev1.PodInitialized, true), condition(corev1.ContainersReady, ready),
			condition(corev1.PodReady, ready)}}
	if w.network != nil {
		status.PodIP = w.network.ipv4.String()
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}, {IP: w.network.ipv6.String()}}
	}
	for _, c := range w.containers {
		status.ContainerStatuses = append(status.ContainerStatuses, c.status())
	}
	return status
}

func (c *container) status() corev1.ContainerStatus {
	status := corev1.ContainerStatus{Name: c.spec.Name, Image: c.spec.Image, Ready: c.ready, RestartCount: c.restarts}
	switch {
	case c.process != nil && c.process.running():
		status.Started = ptr.To(true)
		status.ContainerID = fmt.Sprintf("process://%d", c.process.cmd.Process.Pid)
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: metaTime(c.started)}
		if c.last != nil {
			status.LastTerminationState.Terminated = c.last
		}
	case c.last != nil:
		status.State.Terminated = c.last
	default:
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	return status
}
