// SPDX-License-Identifier: Apache-2.0

// Package status writes the results for Services into the cluster: their addresses and conditions, by server-side
// apply, and Events. Of several balancers, only the holder of the Lease does.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/annotations"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// The conditions of a Service.
const (
	// AddressesAssigned: it has the requested addresses.
	AddressesAssigned = annotations.Prefix + "AddressesAssigned"
	// Accepted: it is served as requested.
	Accepted = annotations.Prefix + "Accepted"
)

// The reasons of true conditions, and of Events other than problems.
const (
	reasonAssigned = "Assigned"
	reasonAccepted = "Accepted"
	// reasonConflict: another controller owns the addresses in the status.
	reasonConflict = "StatusConflict"
)

// maxMessage bounds a message, in bytes: a longer one does not fit into an Event.
const maxMessage = 1000

// passWrites is the number of requests after which Write ends where newer verdicts wait. The rate of requests is
// bounded, and a new Service would wait until the conditions of thousands are written.
const passWrites = 100

// Recorder records Events; client-go's events.EventRecorder implements it.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Writer writes the status of Services.
type Writer struct {
	Client kubernetes.Interface
	// Class is the class of the Services that are ours.
	Class    string
	Recorder Recorder
	// Gateways is for the Gateway API; nil where its objects are not followed.
	Gateways versioned.Interface
	// Newer reports whether newer verdicts wait; nil: none do.
	Newer func() bool
	// requests counts the requests that write a status.
	requests int
	// loggedMessages is the last message about a Service that has no condition to show it, by the Service's UID.
	loggedMessages map[types.UID]string
	// upToDate are the Services whose status is up to date, with the verdict, by "namespace/name".
	upToDate map[string]serviceVerdict
}

// serviceVerdict is a Service and its verdict.
type serviceVerdict struct {
	service *corev1.Service
	verdict model.Verdict
}

// appliedStatus has the fields of a Service's status that we own: fields left out are released.
type appliedStatus struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name      string    `json:"name"`
		Namespace string    `json:"namespace"`
		UID       types.UID `json:"uid"`
	} `json:"metadata"`
	Status *statusFields `json:"status,omitempty"`
}

type statusFields struct {
	LoadBalancer *corev1.LoadBalancerStatus `json:"loadBalancer,omitempty"`
	Conditions   []metav1.Condition         `json:"conditions,omitempty"`
}

// Write updates the status of Services from their verdicts, of those first whose addresses change. It continues after
// an error, and returns all errors. It ends early where newer verdicts wait.
func (w *Writer) Write(ctx context.Context, services []*corev1.Service, verdicts map[string]model.Verdict) error {
	if w.loggedMessages == nil {
		w.loggedMessages = map[types.UID]string{}
	}
	before := w.upToDate
	w.upToDate = make(map[string]serviceVerdict, len(verdicts))
	var errs []error
	services, until := addressesFirst(services, verdicts), w.requests+passWrites
	for i, s := range services {
		if w.requests >= until && w.Newer != nil && w.Newer() {
			for _, rest := range services[i:] {
				w.upToDate[model.Key(rest)] = before[model.Key(rest)]
			}
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		key := model.Key(s)
		verdict, known := verdicts[key]
		var err error
		switch was, there := before[key]; {
		case known && there && was.service == s && was.verdict.Equal(verdict):
			w.upToDate[key] = was
		case known && verdict.Ours:
			err = w.update(ctx, s, verdict)
		default:
			err = w.disown(ctx, s)
			if known {
				w.recordProblems(s, verdict.Problems)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write the status of Service %s: %w", model.Key(s), err))
		}
	}
	return errors.Join(errs...)
}

// addressesFirst returns the Services, those first whose addresses are to change.
func addressesFirst(services []*corev1.Service, verdicts map[string]model.Verdict) []*corev1.Service {
	sorted, others := make([]*corev1.Service, 0, len(services)), make([]*corev1.Service, 0, len(services))
	for _, s := range services {
		v := verdicts[model.Key(s)]
		if v.Ours && !sameIngress(s.Status.LoadBalancer.Ingress, ingressOf(v)) {
			sorted = append(sorted, s)
		} else {
			others = append(others, s)
		}
	}
	return append(sorted, others...)
}

// update writes the status of a Service of ours if it differs.
func (w *Writer) update(ctx context.Context, s *corev1.Service, v model.Verdict) error {
	if err := w.adopt(ctx, s); err != nil {
		return err
	}
	ingress := ingressOf(v)
	conditions := []metav1.Condition{assigned(v), accepted(v)}
	changed := false
	for i := range conditions {
		c := &conditions[i]
		c.ObservedGeneration, c.LastTransitionTime = s.Generation, metav1.Now().Rfc3339Copy()
		previous := apimeta.FindStatusCondition(s.Status.Conditions, c.Type)
		if previous != nil && previous.Status == c.Status {
			c.LastTransitionTime = previous.LastTransitionTime
		}
		if previous == nil || previous.Status != c.Status || previous.Reason != c.Reason ||
			previous.Message != c.Message {
			changed = true
			w.recordCondition(s, c)
		}
	}
	if !changed && sameIngress(s.Status.LoadBalancer.Ingress, ingress) {
		w.upToDate[model.Key(s)] = serviceVerdict{s, v}
		return nil
	}
	status := &statusFields{Conditions: conditions}
	if len(ingress) > 0 {
		status.LoadBalancer = &corev1.LoadBalancerStatus{Ingress: ingress}
	}
	err := w.apply(ctx, s, w.manager(), status)
	if !apierrors.IsConflict(err) {
		return err
	}
	// Another controller has written other addresses: they stay, with an Event.
	w.recordProblems(s, []model.Problem{{Reason: reasonConflict,
		Message: "the addresses in the status are another controller's, and stay: " + err.Error()}})
	status.LoadBalancer = nil
	return w.apply(ctx, s, w.manager(), status)
}

func (w *Writer) manager() string { return model.ManagerOf(w.Class) }

// adopt takes over the fields of a Service of ours that an earlier version wrote, as the one manager of all classes.
// None is missing for a moment: every balancer of the class would stop serving the address.
func (w *Writer) adopt(ctx context.Context, s *corev1.Service) error {
	if w.manager() == model.FieldManager || !model.HasStatusOf(s, model.FieldManager) {
		return nil
	}
	present := &statusFields{}
	for _, c := range s.Status.Conditions {
		if c.Type == AddressesAssigned || c.Type == Accepted {
			present.Conditions = append(present.Conditions, c)
		}
	}
	if len(s.Status.LoadBalancer.Ingress) > 0 && model.HasAddressesOf(s, model.FieldManager) {
		present.LoadBalancer = &s.Status.LoadBalancer
	}
	if err := w.apply(ctx, s, w.manager(), present); err != nil {
		return err
	}
	return w.apply(ctx, s, model.FieldManager, nil)
}

// disown removes our fields from the status of a Service that is no longer ours.
func (w *Writer) disown(ctx context.Context, s *corev1.Service) error {
	if !model.HasStatusOf(s, w.manager()) {
		return nil
	}
	return w.apply(ctx, s, w.manager(), nil)
}

// apply writes the status by server-side apply, as a manager of its fields. A deleted Service is no error.
func (w *Writer) apply(ctx context.Context, s *corev1.Service, manager string, status *statusFields) error {
	object := appliedStatus{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, Status: status}
	object.Metadata.Name, object.Metadata.Namespace, object.Metadata.UID = s.Name, s.Namespace, s.UID
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	w.requests++
	err = retry.OnError(retry.DefaultBackoff, apierrors.IsTooManyRequests, func() error {
		_, err := w.Client.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: manager}, "status")
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ingressOf returns the addresses for a Service's status. In modes that keep a packet's destination, nodes may serve
// the address themselves; otherwise clients in the cluster use the balancer, too.
func ingressOf(v model.Verdict) (list []corev1.LoadBalancerIngress) {
	mode := corev1.LoadBalancerIPModeProxy
	if v.Mode.KeepsPort() {
		mode = corev1.LoadBalancerIPModeVIP
	}
	for _, addr := range v.Addresses {
		list = append(list, corev1.LoadBalancerIngress{IP: addr.String(), IPMode: &mode})
	}
	return list
}

func sameIngress(a, b []corev1.LoadBalancerIngress) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.LoadBalancerIngress) bool {
		return x.IP == y.IP && x.Hostname == y.Hostname && ptr.Equal(x.IPMode, y.IPMode)
	})
}

func assigned(v model.Verdict) metav1.Condition {
	if len(v.Unassigned) > 0 {
		return condition(AddressesAssigned, v.Unassigned)
	}
	if len(v.Addresses) == 0 {
		return condition(AddressesAssigned, []model.Problem{{Reason: model.ReasonUnsupported, Field: "spec.ports",
			Message: "no port can be balanced, so the Service gets no address"}})
	}
	return metav1.Condition{Type: AddressesAssigned, Status: metav1.ConditionTrue, Reason: reasonAssigned,
		Message: listAddresses(v.Addresses)}
}

func listAddresses(list []netip.Addr) string {
	words := make([]string, len(list))
	for i, addr := range list {
		words[i] = addr.String()
	}
	return strings.Join(words, ", ")
}

func accepted(v model.Verdict) metav1.Condition {
	if len(v.Problems) > 0 {
		return condition(Accepted, v.Problems)
	}
	mode := v.Mode
	if mode == "" {
		mode = lb.L2DSR
	}
	return metav1.Condition{Type: Accepted, Status: metav1.ConditionTrue, Reason: reasonAccepted,
		Message: "served by mode " + string(mode)}
}

// condition returns a false condition, with its reason.
func condition(name string, problems []model.Problem) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionFalse, Reason: problems[0].Reason,
		Message: joinProblems(problems)}
}

// joinProblems returns problems as a text of bounded length.
func joinProblems(problems []model.Problem) string {
	text := ""
	for i, p := range problems {
		line := p.String()
		if i > 0 {
			line = "; " + line
		}
		suffix := fmt.Sprintf("; %d more", len(problems)-i)
		if len(text)+len(line)+len(suffix) > maxMessage {
			if i == 0 {
				return Truncate(line, maxMessage)
			}
			return text + suffix
		}
		text += line
	}
	return text
}

// recordCondition records an Event about a changed condition.
func (w *Writer) recordCondition(s *corev1.Service, c *metav1.Condition) {
	if c.Status == metav1.ConditionTrue {
		w.Recorder.Eventf(s, nil, corev1.EventTypeNormal, c.Reason, "Serve", "%s", c.Message)
		return
	}
	w.warn(s, c.Reason, c.Message)
}

// recordProblems records one Event about the problems of a Service without a condition of ours.
func (w *Writer) recordProblems(s *corev1.Service, problems []model.Problem) {
	if text := joinProblems(problems); len(problems) > 0 && w.loggedMessages[s.UID] != text {
		w.loggedMessages[s.UID] = text
		w.warn(s, problems[0].Reason, text)
	}
}

func (w *Writer) warn(s *corev1.Service, reason, message string) {
	w.Recorder.Eventf(s, nil, corev1.EventTypeWarning, reason, "Serve", "%s", Truncate(message, maxMessage))
}

// Truncate shortens a text to at most so many bytes, with an ellipsis.
func Truncate(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
