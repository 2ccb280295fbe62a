/** Asking before something that cannot be undone: `if (await ask({ … })) …`. The shell shows the dialog. */
export interface Question {
  title: string;
  text: string;
  /** what the button that does it says: a verb and what, "Delete 12 jobs" */
  confirm: string;
  danger?: boolean;
  /** has to be typed first, for what would hurt most */
  typed?: string;
}

class Asking {
  question = $state.raw<Question | null>(null);
  #answer: (yes: boolean) => void = () => {};

  ask(question: Question): Promise<boolean> {
    this.#answer(false);
    this.question = question;
    return new Promise((resolve) => {
      this.#answer = resolve;
    });
  }

  settle(yes: boolean): void {
    this.question = null;
    this.#answer(yes);
    this.#answer = () => {};
  }
}

export const asking = new Asking();
export const ask = (question: Question): Promise<boolean> => asking.ask(question);
